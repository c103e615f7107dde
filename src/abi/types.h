// A stream: the driver's CUstream and the runtime's cudaStream_t pass as they are.
typedef struct CUstream_st *cuddy_stream;

// The legacy default stream. Stream 0 is the same one, unless the program is compiled for per-thread
// default streams.
#define CUDDY_STREAM_LEGACY ((cuddy_stream)1)

// The calling thread's own default stream.
#define CUDDY_STREAM_PER_THREAD ((cuddy_stream)2)

// No stream in particular, for memory that any stream, or none, may use at once, as cudaMalloc()
// gives it: its last use is over before it is handed out, and after its free the work of all streams
// comes first.
#define CUDDY_STREAM_ANY ((cuddy_stream)-1)

// In place of a limit: none.
#define CUDDY_NO_LIMIT SIZE_MAX
