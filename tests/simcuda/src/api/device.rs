//! Devices: their number, names, sizes and attributes.

use super::{exports, get, put, put_if, put_text, require, wanted};
use crate::call::Call;
use crate::types::{Code, Outcome, code};

exports! {
    fn cuDeviceGet(device: *mut i32, ordinal: i32) |call| {
        call.device(ordinal)?;
        put(device, ordinal)
    };
    fn cuDeviceGetCount(count: *mut i32) |call| {
        call.started()?;
        put(count, call.devices.len() as i32)
    };
    fn cuDeviceGetName(name: *mut u8, room: i32, device: i32) |call| {
        let device = call.device(device)?;
        let number = call.devices[device as usize].number;
        put_text(name, room, &format!("Simulated GPU {number} (simcuda)"))
    };
    fn cuDeviceGetUuid(uuid: *mut [u8; 16], device: i32) |call| {
        let device = call.device(device)?;
        put(uuid, uuid_of(call.devices[device as usize].number))
    };
    fn cuDeviceGetUuid_v2(uuid: *mut [u8; 16], device: i32) |call| {
        let device = call.device(device)?;
        put(uuid, uuid_of(call.devices[device as usize].number))
    };
    fn cuDeviceTotalMem_v2(bytes: *mut usize, device: i32) |call| {
        let device = call.device(device)?;
        put(bytes, call.memory.budgets[device as usize].total as usize)
    };
    fn cuDeviceGetAttribute(value: *mut i32, attribute: i32, device: i32) |call| {
        let device = call.device(device)?;
        wanted(value)?;
        put(value, attribute_of(call, attribute, device)?)
    };
    fn cuDeviceGetPCIBusId(id: *mut u8, room: i32, device: i32) |call| {
        let device = call.device(device)?;
        require(room >= 13, code::INVALID_VALUE)?;
        put_text(id, room, &pci_id(call.devices[device as usize].number))
    };
    fn cuDeviceGetByPCIBusId(device: *mut i32, id: *const i8) |call| by_pci_id(call, device, id);
    fn cuDeviceGetProperties(properties: *mut [i32; 13], device: i32) |call| {
        call.device(device)?;
        let grid = [i32::MAX, 65535, 65535];
        put(properties, [
            1024, 1024, 1024, 64, grid[0], grid[1], grid[2], 48 << 10, 64 << 10, 32, i32::MAX, 64 << 10,
            1_755_000,
        ])
    };
    fn cuDeviceComputeCapability(major: *mut i32, minor: *mut i32, device: i32) |call| {
        call.device(device)?;
        wanted(minor)?;
        put(major, 9)?;
        put(minor, 0)
    };
    fn cuDeviceGetExecAffinitySupport(supported: *mut i32, kind: i32, device: i32) |call| {
        call.device(device)?;
        require(kind == 0, code::INVALID_VALUE)?;
        put(supported, 0)
    };
    fn cuDeviceGetTexture1DLinearMaxWidth(
        elements: *mut usize, format: i32, channels: u32, device: i32,
    ) |call| {
        let _ = (format, channels);
        call.device(device)?;
        put(elements, 1 << 28)
    };
    fn cuDeviceGetLuid(luid: *mut [u8; 8], mask: *mut u32, device: i32) |call| {
        let device = call.device(device)?;
        put_if(mask, 1)?;
        put(luid, (u64::from(device) + 1).to_le_bytes())
    };
}

/// A device's number and "SIMCUDA": not a GPU's, and the same in every process.
pub fn uuid_of(device: u32) -> [u8; 16] {
    let mut uuid = *b"\0\0\0\0SIMCUDA-GPU\0";
    uuid[..4].copy_from_slice(&device.to_be_bytes());
    uuid
}

fn pci_id(device: u32) -> String {
    format!("{:04x}:{:02x}:00.0", 0, device + 1)
}

fn by_pci_id(call: &mut Call, device: *mut i32, id: *const i8) -> Outcome {
    call.started()?;
    let mut text = String::new();
    for i in 0..32 {
        // Null is refused by `get`; the string ends within its caller's memory.
        match get(id.wrapping_add(i))? {
            0 => break,
            c => text.push(char::from(c as u8)),
        }
    }
    let asked = text.trim().to_ascii_lowercase();
    let long = if asked.matches(':').count() == 1 { format!("0000:{asked}") } else { asked };
    let number = |d: u32| call.devices[d as usize].number;
    let same = |d: &u32| pci_id(number(*d)).starts_with(&long) && long.len() >= "0000:01:00".len();
    let found = (0..call.devices.len() as u32).find(same).ok_or(code::INVALID_DEVICE)?;
    put(device, found as i32)
}

/// Attributes, as an H100-like device has them where a value must be given. Those not named are 0:
/// not supported.
fn attribute_of(call: &Call, attribute: i32, device: u32) -> Result<i32, Code> {
    let vmm = i32::from(call.config.vmm);
    let device = call.devices[device as usize].number;
    Ok(match attribute {
        1 => 1024,               // threads in a block
        2 | 3 => 1024,           // block x, y
        4 => 64,                 // block z
        5 => i32::MAX,           // grid x
        6 | 7 => 65535,          // grid y, z
        8 => 48 << 10,           // shared memory of a block
        9 => 64 << 10,           // constant memory
        10 => 32,                // warp
        11 => i32::MAX,          // pitch
        12 => 64 << 10,          // registers of a block
        13 => 1_755_000,         // clock, kHz
        14 => 512,               // texture alignment
        15 => 1,                 // copies overlap kernels
        16 => 132,               // multiprocessors
        19 => 1,                 // can map host memory
        21 => 131_072,           // texture sizes: 1-D,
        22 | 23 => 131_072,      // 2-D,
        24..=26 => 16_384,       // 3-D
        30 => 512,               // surface alignment
        31 => 1,                 // concurrent kernels
        33 => device as i32 + 1, // PCI bus
        34 | 50 => 0,            // PCI device, domain
        36 => 2_619_000,         // memory clock, kHz
        37 => 5120,              // bus width, bits
        38 => 50 << 20,          // L2
        39 => 2048,              // threads of a multiprocessor
        40 => 3,                 // copy engines
        41 => 1,                 // unified addressing
        51 => 32,                // texture pitch alignment
        75 => 9,                 // compute capability, major
        76 => 0,                 // and minor
        78..=80 => 1,            // stream priorities, L1 caching
        81 => 228 << 10,         // shared memory of a multiprocessor
        82 => 64 << 10,          // registers of a multiprocessor
        83 => 1,                 // managed memory
        85 => device as i32,     // board group
        90 => 1,                 // compute preemption
        89 => 1,                 // and by host and device at once
        91 => 1,                 // registered host memory keeps its address
        95 => 1,                 // cooperative launch
        97 => 227 << 10,         // shared memory of a block, opt-in
        99 => 1,                 // host registration
        102 => vmm,              // virtual memory management
        103 => vmm,              // handles as file descriptors
        106 => 32,               // blocks of a multiprocessor
        111 => 1 << 10,          // reserved shared memory
        113 => 1,                // read-only registration
        115 => 1,                // memory pools
        119 => 1,                // of them, to be shared as file descriptors
        120 => 1,                // clusters
        134 => 0,                // host NUMA node
        131 => -1,               // device NUMA node
        17
        | 18
        | 20
        | 27..=29
        | 32
        | 35
        | 42..=49
        | 52..=74
        | 77
        | 84
        | 86..=88
        | 92..=94
        | 96
        | 98
        | 100
        | 101
        | 104
        | 105
        | 107..=110
        | 112
        | 114
        | 116..=118
        | 121..=130
        | 132
        | 133
        | 135..=161 => 0,
        _ => return Err(code::INVALID_VALUE),
    })
}
