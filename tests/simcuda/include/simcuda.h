/* simcuda.h: control functions of the simulated CUDA driver.
 *
 * libsimcuda.so is a CUDA driver (its SONAME is libcuda.so.1) whose devices are simulated in host
 * memory. A program uses it by the CUDA driver API; a test of that program uses these functions too.
 * They may be called from any thread, at any time, and are not counted as driver calls.
 *
 * Those that return int and can refuse answer 0, or -1 and leave a text for simcuda_error(). The
 * counters answer UINT64_MAX if the simulator itself is broken.
 */
#ifndef SIMCUDA_H
#define SIMCUDA_H

#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* ---- The machine -------------------------------------------------------------------------------
 *
 * The environment says what is simulated, and is read at cuInit:
 *   SIMCUDA_DEVICES=n             number of devices, 0 to 64                              (1)
 *   SIMCUDA_MEMORY=80GiB,24GiB    size of each; the last holds for those after it         (80GiB)
 *   SIMCUDA_SCHEDULE=...          see simcuda_schedule                                    (eager)
 *   SIMCUDA_CHECKER=...           see simcuda_checker                                     (off)
 *   SIMCUDA_VMM=0|1               whether devices have virtual memory management          (1)
 *   SIMCUDA_DRIVER=13000          version of the driver: what is newer is not there       (13000)
 *   SIMCUDA_GRANULARITY=2MiB      granularity of virtual memory management                (2MiB)
 *   SIMCUDA_FAULTS=cuMemCreate:3:OUT_OF_MEMORY,...   function, first call, code           (none)
 *   SIMCUDA_KERNELS=FILE          what kernels use: see simcuda_kernel_accesses           (none)
 *   SIMCUDA_REPORT=stderr|FILE    at exit: findings, calls, virtual time                  (nowhere)
 *   CUDA_VISIBLE_DEVICES=1,0 or GPU-...,...   which devices there are for the program, in its order; the key
 *                                 is "visible_devices", "all" is what holds where it is not set
 * A FILE whose name ends in .jsonl gets lines of JSON at its end, from many processes if need be: each
 * has a "process" and an "event", which is "begin" (at cuInit: "program", "checker"), "finding" (when
 * it is found: "text") or "end" (at exit and at simcuda_reset: "findings", "accesses",
 * "unknown_launches", "calls", "driver_ns", ...); or "refused" (cuInit failed: "why"), "proof" (a
 * "file" asked whether the driver is genuine). A process without an "end" was killed or left by _exit.
 * `cuddy sim` sets all this, and reads it.
 */

/* Sets what SIMCUDA_<KEY> would; the key in lower case: "memory", "24GiB". Before cuInit, or after
 * simcuda_reset. Comes before the environment. */
int simcuda_configure(const char *key, const char *value);

/* Everything as before cuInit: all objects are gone, all counters 0, and what simcuda_configure
 * said is forgotten. No other thread may be in a driver call. */
void simcuda_reset(void);

/* Why the last function that could refuse did so, or which address work touched that it may not. */
int simcuda_error(char *buffer, uint64_t bytes);

/* ---- Order -------------------------------------------------------------------------------------
 *
 * CUDA's order is decided by the calls: streams, events, default streams, waits. The schedule says
 * when work runs within that order, and so what data a program sees that is not ordered.
 */

/* "eager": at once; "lazy": only when waited for; "lag:K": when K more have been queued, or when
 * waited for; "random:SEED": a random order, which the seed reproduces. */
int simcuda_schedule(const char *schedule);

/* Kernel "simcuda_gate"(id) waits until this is called; from then on it does not wait. */
void simcuda_gate_open(uint64_t id);

/* "ordered" (at first): host threads are taken to be ordered as their driver calls happen, since
 * their locks cannot be seen. "separate": only by simcuda_signal and simcuda_await. */
int simcuda_threads(const char *order);

/* What this thread did so far comes before what follows a simcuda_await of the same tag. */
void simcuda_signal(uint64_t tag);

/* The other end of simcuda_signal; if that was not called yet, nothing. Does not wait. */
void simcuda_await(uint64_t tag);

/* ---- Findings ----------------------------------------------------------------------------------
 *
 * The checker compares every use of memory with the earlier uses of the same physical bytes: two
 * uses that nothing orders, memory taken away under work, use of what is freed, unmapped or not
 * accessible. It judges when work is queued, whatever the schedule does. A host thread that touches
 * device memory itself dies of SIGSEGV; that is a finding too, told before it dies.
 */

/* "off", "log", or "abort": print the first finding and abort. */
int simcuda_checker(const char *mode);

/* Whether to find reads of bytes that were never written, in what is allocated from now on. */
void simcuda_report_uninitialised(int on);

/* Findings so far. */
uint64_t simcuda_report_count(void);

/* The text of one: a sentence, both sides, the bytes. Cut short to the buffer. */
int simcuda_report_text(uint64_t index, char *buffer, uint64_t bytes);

/* Forgets them. */
void simcuda_reports_clear(void);

/* How many uses were compared. A run without findings that checked 0 has shown nothing. */
uint64_t simcuda_accesses_checked(void);

/* Launches of kernels whose uses are not known. */
uint64_t simcuda_unknown_launches(void);

/* Says what a kernel of the program uses, so that its launches are checked like copies: for example
 *   simcuda_kernel_accesses("scale_float", "write p0 bytes=w2*4, read p1 bytes=w2*4");
 * In the name, `*` stands for any text (C++ names are mangled). A use is `read` or `write`, an
 * address, and `bytes=`. A value is `pN`, the eight bytes of parameter N, counted from 0; `wN`, four
 * bytes; `pN[K]` or `wN[K]`, the same K bytes into a structure; `threads` or `blocks` of the launch;
 * or a number; joined by `*` and `+`, without blanks. No uses: the kernel uses no memory. What was
 * said last of a name holds. An address that is not the program's to use is found, and spoils the
 * context, as on a GPU. The declaration has to fit the kernel: a parameter that it does not have is
 * read all the same. Launches that pass their parameters in one buffer stay unknown.
 * SIMCUDA_KERNELS names a file with a line for each kernel: the name, then the uses; # comments. The
 * report at exit lists the kernels that nothing was said of. */
int simcuda_kernel_accesses(const char *kernel, const char *uses);

/* Tells the checker that the host wrote or read page-locked memory. */
int simcuda_host_write(uint64_t address, uint64_t bytes, const char *label);
int simcuda_host_read(uint64_t address, uint64_t bytes, const char *label);

/* ---- Faults ------------------------------------------------------------------------------------
 *
 * Functions are named without version and stream suffixes; a rule holds for all variants. A name that
 * is no function of the driver is refused.
 */

/* Call `first` of the function, counted from now (1 = the next), fails with this CUresult; if
 * `every` is not 0, so does every `every`-th after it. With `after_effect` the call first does its
 * work: refused where the call hands out an object, which nobody could give back. */
int simcuda_fault(const char *function, uint64_t first, uint64_t every, int code,
                  int after_effect);

/* So many calls in a million fail, before their effect; "*" is any function but those that only
 * look up names and versions. */
int simcuda_fault_random(const char *function, uint64_t per_million, uint64_t seed, int code);

/* Call `at` of the function, counted from now (1 = the next), first calls `first(argument)` on its own
 * thread, before its effect; it may make driver calls, or wait for other threads that do. So a test
 * decides where two threads meet. Once; the call does not fail by it. */
int simcuda_meet(const char *function, uint64_t at, void (*first)(uintptr_t), uintptr_t argument);

/* Ends all rules. */
void simcuda_faults_clear(void);

/* How many calls were made to fail. */
uint64_t simcuda_faults_fired(void);

/* Requests of at least this many bytes find no memory; 0: none. */
int simcuda_oom_above(int device, uint64_t bytes);

/* So many bytes of the device are taken by other processes. */
int simcuda_others_use(int device, uint64_t bytes);

/* Changes the device's size. */
int simcuda_total_memory(int device, uint64_t bytes);

/* ---- Counts ------------------------------------------------------------------------------------ */

/* Bytes of device memory in use by this process: cuMemAlloc's, rounded up to 512, and cuMemCreate's
 * until handle and mappings are gone. */
uint64_t simcuda_used(int device);

/* The most that it was. */
uint64_t simcuda_used_peak(int device);

/* The peak begins anew at what is in use. */
int simcuda_used_peak_reset(int device);

/* Contexts created on the device, primary ones included. */
uint64_t simcuda_contexts_created(int device);

/* Live objects: "handles" (references to cuMemCreate's), "mappings", "reservations", "allocations",
 * "imports" (mappings of other processes' memory), "host_allocations", "host_allocation_bytes" (their sum),
 * "host_registrations", "objects" (of memory, physical), "streams", "events", "contexts", "modules",
 * "libraries". UINT64_MAX for any other name. */
uint64_t simcuda_objects(const char *what);

/* Calls of a driver function, all its variants together. */
uint64_t simcuda_calls(const char *function);

/* Calls of all driver functions. */
uint64_t simcuda_calls_total(void);

/* The functions that were called, by name: 0, 1, ... until -1. */
int simcuda_call_name(uint64_t index, char *buffer, uint64_t bytes);
uint64_t simcuda_call_count(uint64_t index);

/* Counts calls from 0 again. */
void simcuda_calls_clear(void);

/* ---- Virtual time ------------------------------------------------------------------------------
 *
 * Nothing sleeps: each driver call moves the host's clock by what a table says, and a wait moves it
 * to the end of what was waited for. The table's figures were published by others for an A100 or
 * lie between such; none was measured by this project.
 */

/* The host's clock, in nanoseconds. */
uint64_t simcuda_time_ns(void);

/* The part of it that passed in driver calls, waits included. */
uint64_t simcuda_driver_time_ns(void);

/* Time passes outside the driver. */
void simcuda_advance(uint64_t ns);

/* What a function costs from now on. */
void simcuda_cost(const char *function, uint64_t fixed_ns, uint64_t ns_per_mib);

/* ---- Memory ------------------------------------------------------------------------------------ */

/* Reads or writes device memory as it is now, outside all order, rights and checks. */
int simcuda_peek(uint64_t address, void *buffer, uint64_t bytes);
int simcuda_poke(uint64_t address, const void *buffer, uint64_t bytes);

/* ---- Kernels -----------------------------------------------------------------------------------
 *
 * Any image loads as a module, and a module has every function that is asked of it. These really
 * work on memory; others take 5 us of virtual time, and do nothing to it, whatever is declared of them.
 *   simcuda_fill(u64 address, u64 bytes, u8 value)
 *   simcuda_copy(u64 to, u64 from, u64 bytes)
 *   simcuda_add(u64 to, u64 a, u64 b, u64 count)     floats
 *   simcuda_spin(u64 ns)                             takes virtual time
 *   simcuda_spin_real(u64 ns)                        takes real time
 *   simcuda_touch(u64 address, u64 bytes, u32 write) uses the bytes and leaves them as they are
 *   simcuda_gate(u64 id)                             waits for simcuda_gate_open(id)
 *   cuddy_pattern_write(u64 address, u64 bytes, u64 stride, u64 seed)
 *   cuddy_pattern_check(u64 address, u64 bytes, u64 stride, u64 seed, u64 counter)
 * The pattern: at the last eight bytes, and at every multiple of the stride (at least 8) that leaves
 * room for eight bytes before those, the little-endian word mix(seed ^ offset), where mix(state) is
 * what SplitMix64 gives in that state; blocks of less than eight bytes have mix(seed ^ i)'s low byte
 * as byte i. The check adds the number of wrong words to the u64 at `counter`, atomically.
 */

#ifdef __cplusplus
}
#endif

#endif
