//! **cudaDeviceProp** of CUDA 12: where each of its fields lies that is asked of the driver. What has
//! no driver attribute, or one that the driver does not answer, is 0.

use crate::{Outcome, code, device, driver};

/// Bytes of the structure.
const SIZE: usize = 1032;
const NAME: usize = 0;
const UUID: usize = 256;
const TOTAL_MEMORY: usize = 288;

/// Offset, bytes, the attribute's number in the driver API.
const FIELDS: &[(usize, usize, i32)] = &[
    (296, 8, 8),   // sharedMemPerBlock
    (304, 4, 12),  // regsPerBlock
    (308, 4, 10),  // warpSize
    (312, 8, 11),  // memPitch
    (320, 4, 1),   // maxThreadsPerBlock
    (324, 4, 2),   // maxThreadsDim[0]
    (328, 4, 3),   // maxThreadsDim[1]
    (332, 4, 4),   // maxThreadsDim[2]
    (336, 4, 5),   // maxGridSize[0]
    (340, 4, 6),   // maxGridSize[1]
    (344, 4, 7),   // maxGridSize[2]
    (348, 4, 13),  // clockRate
    (352, 8, 9),   // totalConstMem
    (360, 4, 75),  // major
    (364, 4, 76),  // minor
    (368, 8, 14),  // textureAlignment
    (376, 8, 51),  // texturePitchAlignment
    (384, 4, 15),  // deviceOverlap
    (388, 4, 16),  // multiProcessorCount
    (392, 4, 17),  // kernelExecTimeoutEnabled
    (396, 4, 18),  // integrated
    (400, 4, 19),  // canMapHostMemory
    (404, 4, 20),  // computeMode
    (568, 8, 30),  // surfaceAlignment
    (576, 4, 31),  // concurrentKernels
    (580, 4, 32),  // ECCEnabled
    (584, 4, 33),  // pciBusID
    (588, 4, 34),  // pciDeviceID
    (592, 4, 50),  // pciDomainID
    (596, 4, 35),  // tccDriver
    (600, 4, 40),  // asyncEngineCount
    (604, 4, 41),  // unifiedAddressing
    (608, 4, 36),  // memoryClockRate
    (612, 4, 37),  // memoryBusWidth
    (616, 4, 38),  // l2CacheSize
    (620, 4, 108), // persistingL2CacheMaxSize
    (624, 4, 39),  // maxThreadsPerMultiProcessor
    (628, 4, 78),  // streamPrioritiesSupported
    (632, 4, 79),  // globalL1CacheSupported
    (636, 4, 80),  // localL1CacheSupported
    (640, 8, 81),  // sharedMemPerMultiprocessor
    (648, 4, 82),  // regsPerMultiprocessor
    (652, 4, 83),  // managedMemory
    (656, 4, 84),  // isMultiGpuBoard
    (660, 4, 85),  // multiGpuBoardGroupID
    (664, 4, 86),  // hostNativeAtomicSupported
    (668, 4, 87),  // singleToDoublePrecisionPerfRatio
    (672, 4, 88),  // pageableMemoryAccess
    (676, 4, 89),  // concurrentManagedAccess
    (680, 4, 90),  // computePreemptionSupported
    (684, 4, 91),  // canUseHostPointerForRegisteredMem
    (688, 4, 95),  // cooperativeLaunch
    (692, 4, 96),  // cooperativeMultiDeviceLaunch
    (696, 8, 97),  // sharedMemPerBlockOptin
    (704, 4, 100), // pageableMemoryAccessUsesHostPageTables
    (708, 4, 101), // directManagedMemAccessFromHost
    (712, 4, 106), // maxBlocksPerMultiProcessor
    (716, 4, 109), // accessPolicyMaxWindowSize
    (720, 8, 111), // reservedSharedMemPerBlock
    (728, 4, 99),  // hostRegisterSupported
    (736, 4, 113), // hostRegisterReadOnlySupported
    (740, 4, 114), // timelineSemaphoreInteropSupported
    (744, 4, 115), // memoryPoolsSupported
    (748, 4, 116), // gpuDirectRDMASupported
    (752, 4, 117), // gpuDirectRDMAFlushWritesOptions
    (756, 4, 118), // gpuDirectRDMAWritesOrdering
    (760, 4, 119), // memoryPoolSupportedHandleTypes
    (764, 4, 121), // deferredMappingCudaArraySupported
    (768, 4, 125), // ipcEventSupported
    (772, 4, 120), // clusterLaunch
    (776, 4, 129), // unifiedFunctionPointers
];

crate::exports! {
    fn rt_cudaGetDeviceProperties_v2(properties: *mut u8, device: i32) {
        if properties.is_null() {
            return Err(code::INVALID_VALUE);
        }
        if !(0..device::count()?).contains(&device) {
            return Err(code::INVALID_DEVICE);
        }
        let mut all = [0; SIZE];
        fill(&mut all, device)?;
        // SAFETY: not null, and the caller vouches for a whole structure there (see the crate).
        unsafe { properties.copy_from_nonoverlapping(all.as_ptr(), SIZE) };
        Ok(())
    }
}

fn fill(all: &mut [u8; SIZE], device: i32) -> Outcome {
    driver::cuDeviceGetName(all[NAME..].as_mut_ptr(), UUID as i32, device)?;
    let (mut uuid, mut bytes) = ([0; 16], 0);
    if driver::cuDeviceGetUuid(&mut uuid, device).is_ok() {
        all[UUID..UUID + 16].copy_from_slice(&uuid);
    }
    driver::cuDeviceTotalMem(&mut bytes, device)?;
    all[TOTAL_MEMORY..TOTAL_MEMORY + 8].copy_from_slice(&bytes.to_ne_bytes());
    for &(at, size, attribute) in FIELDS {
        let mut value = 0;
        if driver::cuDeviceGetAttribute(&mut value, attribute, device).is_ok() {
            all[at..at + size].copy_from_slice(&(value as u64).to_ne_bytes()[..size]);
        }
    }
    Ok(())
}
