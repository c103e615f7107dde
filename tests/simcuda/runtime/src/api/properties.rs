//! **Device properties**: a structure of some hundred fields, which is laid out in two ways.
//!
//! `place of a field = end of the one before it, rounded up to its own size`, over the fields that
//! the CUDA in question has, in the order of [`FIELDS`]. CUDA 13 took out nine of CUDA 12's and put
//! seven in at the end. Each field says which device attribute it shows.

use super::{exports, wanted};
use crate::driver::Driver;
use crate::types::Code;

exports! {
    driver fn cudaGetDeviceProperties_v2(to: *mut u8, device: i32) |d| {
        wanted(to)?;
        write(to, &image(d, device, 12)?)
    };
    driver fn cudaGetDeviceProperties_13(to: *mut u8, device: i32) |d| {
        wanted(to)?;
        write(to, &image(d, device, 13)?)
    };
}

/// What a field holds.
#[derive(Clone, Copy, Debug)]
enum Value {
    Name,
    Uuid,
    Luid,
    LuidMask,
    TotalMemory,
    /// A device attribute.
    Of(i32),
    /// Several of them.
    List(&'static [i32]),
    /// One that the newest drivers alone know; 0 on the others.
    Newer(i32),
    /// Room for later.
    Room(usize),
}

/// Width of a field's items.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Width {
    Byte = 1,
    Int = 4,
    Size = 8,
}

/// Which CUDA has a field.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum In {
    Both,
    Twelve,
    Thirteen,
}

/// A field of `cudaDeviceProp`.
#[derive(Debug)]
struct Field {
    #[cfg_attr(not(test), expect(dead_code, reason = "for the reader and the test"))]
    name: &'static str,
    width: Width,
    present: In,
    value: Value,
}

const fn field(name: &'static str, width: Width, present: In, value: Value) -> Field {
    Field { name, width, present, value }
}

use In::{Both, Thirteen, Twelve};
use Value::{List, Luid, LuidMask, Name, Newer, Of, Room, TotalMemory, Uuid};
use Width::{Byte, Int, Size};

const NAME_BYTES: usize = 256;

static FIELDS: &[Field] = &[
    field("name", Byte, Both, Name),
    field("uuid", Byte, Both, Uuid),
    field("luid", Byte, Both, Luid),
    field("luidDeviceNodeMask", Int, Both, LuidMask),
    field("totalGlobalMem", Size, Both, TotalMemory),
    field("sharedMemPerBlock", Size, Both, Of(8)),
    field("regsPerBlock", Int, Both, Of(12)),
    field("warpSize", Int, Both, Of(10)),
    field("memPitch", Size, Both, Of(11)),
    field("maxThreadsPerBlock", Int, Both, Of(1)),
    field("maxThreadsDim", Int, Both, List(&[2, 3, 4])),
    field("maxGridSize", Int, Both, List(&[5, 6, 7])),
    field("clockRate", Int, Twelve, Of(13)),
    field("totalConstMem", Size, Both, Of(9)),
    field("major", Int, Both, Of(75)),
    field("minor", Int, Both, Of(76)),
    field("textureAlignment", Size, Both, Of(14)),
    field("texturePitchAlignment", Size, Both, Of(51)),
    field("deviceOverlap", Int, Twelve, Of(15)),
    field("multiProcessorCount", Int, Both, Of(16)),
    field("kernelExecTimeoutEnabled", Int, Twelve, Of(17)),
    field("integrated", Int, Both, Of(18)),
    field("canMapHostMemory", Int, Both, Of(19)),
    field("computeMode", Int, Twelve, Of(20)),
    field("maxTexture1D", Int, Both, Of(21)),
    field("maxTexture1DMipmap", Int, Both, Of(77)),
    field("maxTexture1DLinear", Int, Twelve, Of(69)),
    field("maxTexture2D", Int, Both, List(&[22, 23])),
    field("maxTexture2DMipmap", Int, Both, List(&[73, 74])),
    field("maxTexture2DLinear", Int, Both, List(&[70, 71, 72])),
    field("maxTexture2DGather", Int, Both, List(&[45, 46])),
    field("maxTexture3D", Int, Both, List(&[24, 25, 26])),
    field("maxTexture3DAlt", Int, Both, List(&[47, 48, 49])),
    field("maxTextureCubemap", Int, Both, Of(52)),
    field("maxTexture1DLayered", Int, Both, List(&[42, 43])),
    field("maxTexture2DLayered", Int, Both, List(&[27, 28, 29])),
    field("maxTextureCubemapLayered", Int, Both, List(&[53, 54])),
    field("maxSurface1D", Int, Both, Of(55)),
    field("maxSurface2D", Int, Both, List(&[56, 57])),
    field("maxSurface3D", Int, Both, List(&[58, 59, 60])),
    field("maxSurface1DLayered", Int, Both, List(&[61, 62])),
    field("maxSurface2DLayered", Int, Both, List(&[63, 64, 65])),
    field("maxSurfaceCubemap", Int, Both, Of(66)),
    field("maxSurfaceCubemapLayered", Int, Both, List(&[67, 68])),
    field("surfaceAlignment", Size, Both, Of(30)),
    field("concurrentKernels", Int, Both, Of(31)),
    field("ECCEnabled", Int, Both, Of(32)),
    field("pciBusID", Int, Both, Of(33)),
    field("pciDeviceID", Int, Both, Of(34)),
    field("pciDomainID", Int, Both, Of(50)),
    field("tccDriver", Int, Both, Of(35)),
    field("asyncEngineCount", Int, Both, Of(40)),
    field("unifiedAddressing", Int, Both, Of(41)),
    field("memoryClockRate", Int, Twelve, Of(36)),
    field("memoryBusWidth", Int, Both, Of(37)),
    field("l2CacheSize", Int, Both, Of(38)),
    field("persistingL2CacheMaxSize", Int, Both, Of(108)),
    field("maxThreadsPerMultiProcessor", Int, Both, Of(39)),
    field("streamPrioritiesSupported", Int, Both, Of(78)),
    field("globalL1CacheSupported", Int, Both, Of(79)),
    field("localL1CacheSupported", Int, Both, Of(80)),
    field("sharedMemPerMultiprocessor", Size, Both, Of(81)),
    field("regsPerMultiprocessor", Int, Both, Of(82)),
    field("managedMemory", Int, Both, Of(83)),
    field("isMultiGpuBoard", Int, Both, Of(84)),
    field("multiGpuBoardGroupID", Int, Both, Of(85)),
    field("hostNativeAtomicSupported", Int, Both, Of(86)),
    field("singleToDoublePrecisionPerfRatio", Int, Twelve, Of(87)),
    field("pageableMemoryAccess", Int, Both, Of(88)),
    field("concurrentManagedAccess", Int, Both, Of(89)),
    field("computePreemptionSupported", Int, Both, Of(90)),
    field("canUseHostPointerForRegisteredMem", Int, Both, Of(91)),
    field("cooperativeLaunch", Int, Both, Of(95)),
    field("cooperativeMultiDeviceLaunch", Int, Twelve, Of(96)),
    field("sharedMemPerBlockOptin", Size, Both, Of(97)),
    field("pageableMemoryAccessUsesHostPageTables", Int, Both, Of(100)),
    field("directManagedMemAccessFromHost", Int, Both, Of(101)),
    field("maxBlocksPerMultiProcessor", Int, Both, Of(106)),
    field("accessPolicyMaxWindowSize", Int, Both, Of(109)),
    field("reservedSharedMemPerBlock", Size, Both, Of(111)),
    field("hostRegisterSupported", Int, Both, Of(99)),
    field("sparseCudaArraySupported", Int, Both, Of(112)),
    field("hostRegisterReadOnlySupported", Int, Both, Of(113)),
    field("timelineSemaphoreInteropSupported", Int, Both, Of(114)),
    field("memoryPoolsSupported", Int, Both, Of(115)),
    field("gpuDirectRDMASupported", Int, Both, Of(116)),
    field("gpuDirectRDMAFlushWritesOptions", Int, Both, Of(117)),
    field("gpuDirectRDMAWritesOrdering", Int, Both, Of(118)),
    field("memoryPoolSupportedHandleTypes", Int, Both, Of(119)),
    field("deferredMappingCudaArraySupported", Int, Both, Newer(121)),
    field("ipcEventSupported", Int, Both, Newer(125)),
    field("clusterLaunch", Int, Both, Newer(120)),
    field("unifiedFunctionPointers", Int, Both, Newer(129)),
    field("deviceNumaConfig", Int, Thirteen, Newer(130)),
    field("deviceNumaId", Int, Thirteen, Newer(131)),
    field("mpsEnabled", Int, Thirteen, Newer(133)),
    field("hostNumaId", Int, Thirteen, Newer(134)),
    field("gpuPciDeviceID", Int, Thirteen, Newer(139)),
    field("gpuPciSubsystemID", Int, Thirteen, Newer(140)),
    field("hostNumaMultinodeIpcSupported", Int, Thirteen, Newer(143)),
    field("reserved", Int, Twelve, Room(63)),
    field("reserved", Int, Thirteen, Room(56)),
];

/// The fields of one CUDA's structure with their places, and its size.
fn layout(major: i32) -> (Vec<(usize, &'static Field)>, usize) {
    let (mut end, mut placed) = (0usize, Vec::new());
    let fits = |f: &&Field| f.present == if major == 12 { Twelve } else { Thirteen };
    for field in FIELDS.iter().filter(|f| f.present == Both || fits(f)) {
        let place = end.next_multiple_of(field.width as usize);
        placed.push((place, field));
        end = place + field.width as usize * items(field);
    }
    (placed, end.next_multiple_of(Size as usize))
}

fn items(field: &Field) -> usize {
    match field.value {
        Name => NAME_BYTES,
        Uuid => 16,
        Luid => 8,
        List(list) => list.len(),
        Room(count) => count,
        LuidMask | TotalMemory | Of(_) | Newer(_) => 1,
    }
}

/// The structure's bytes.
fn image(driver: &Driver, device: i32, major: i32) -> Result<Vec<u8>, Code> {
    let (fields, size) = layout(major);
    let mut image = vec![0; size];
    let (mut luid, mut mask) = ([0u8; 8], 0u32);
    // Only Windows needs it; a driver may refuse.
    let _ = driver.cuDeviceGetLuid(luid.as_mut_ptr(), &mut mask, device);
    for (place, field) in fields {
        let to = &mut image[place..];
        match field.value {
            Name => driver.cuDeviceGetName(to.as_mut_ptr(), NAME_BYTES as i32, device)?,
            Uuid => driver.cuDeviceGetUuid(to.as_mut_ptr(), device)?,
            Luid => to[..8].copy_from_slice(&luid),
            LuidMask => set(to, Int, i64::from(mask)),
            TotalMemory => {
                let mut bytes = 0;
                driver.cuDeviceTotalMem(&mut bytes, device)?;
                set(to, Size, bytes as i64);
            }
            Of(attribute) => set(to, field.width, read(driver, attribute, device)?),
            Newer(attribute) => {
                set(to, field.width, read(driver, attribute, device).unwrap_or_default());
            }
            List(list) => {
                for (place, &attribute) in list.iter().enumerate() {
                    set(&mut to[4 * place..], Int, read(driver, attribute, device)?);
                }
            }

            Room(_) => {}
        }
    }
    Ok(image)
}

fn read(driver: &Driver, attribute: i32, device: i32) -> Result<i64, Code> {
    let mut value = 0;
    driver.cuDeviceGetAttribute(&mut value, attribute, device)?;
    Ok(i64::from(value))
}

fn set(to: &mut [u8], width: Width, value: i64) {
    let width = width as usize;
    to[..width].copy_from_slice(&value.to_le_bytes()[..width]);
}

fn write(to: *mut u8, image: &[u8]) -> Result<(), Code> {
    // SAFETY: not null, and the caller vouches for a structure of its CUDA's size.
    unsafe { std::ptr::copy_nonoverlapping(image.as_ptr(), to, image.len()) };
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Places of all fields, by the compiler's `offsetof` on the headers of the runtime's wheels.
    const OFFSETS: &str = include_str!("../../names/properties.tsv");

    #[test]
    fn each_field_is_where_the_headers_have_it() {
        for (column, major) in [(1, 12), (2, 13)] {
            let (fields, size) = layout(major);
            let mut rows = 0;
            for line in OFFSETS.lines().skip(1) {
                let cells: Vec<_> = line.split('\t').collect();
                let Ok(place) = cells[column].parse::<usize>() else { continue };
                rows += 1;
                if cells[0] == "sizeof" {
                    assert_eq!(size, place, "size of CUDA {major}'s");
                    continue;
                }
                let found = fields.iter().find(|(_, field)| field.name == cells[0]);
                assert_eq!(found.map(|f| f.0), Some(place), "CUDA {major}: {}", cells[0]);
            }
            assert_eq!(rows, fields.len() + 1, "CUDA {major}: a field too many or too few");
        }
    }
}
