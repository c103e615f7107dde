//! What is known of an address.

use super::{exports, get, put, require, wanted};
use crate::call::Call;
use crate::memory::table::{Kind, Mapping};
use crate::types::{Code, Outcome, code};

exports! {
    fn cuPointerGetAttribute(data: *mut u8, attribute: i32, address: u64) |call| {
        call.context()?;
        wanted(data)?;
        write(call, data, attribute, address)
    };
    fn cuPointerGetAttributes(
        count: u32, attributes: *const i32, data: *const *mut u8, address: u64,
    ) |call| {
        call.context()?;
        for i in 0..count as usize {
            let (attribute, to) = (get(attributes.wrapping_add(i))?, get(data.wrapping_add(i))?);
            wanted(to)?;
            match write(call, to, attribute, address) {
                // An address that is not ours has zeroes for attributes, but for the names it can
                // still have.
                Err(code::INVALID_VALUE) if (1..=22).contains(&attribute) => zero(to, attribute)?,
                other => other?,
            }
        }
        Ok(())
    };
    fn cuPointerSetAttribute(value: *const u32, attribute: i32, address: u64) |call| {
        call.context()?;
        let value = get(value)?;
        require(attribute == 6, code::INVALID_VALUE)?;
        let mapping = call.memory.table.find_mut(address).ok_or(code::INVALID_VALUE)?;
        mapping.sync_memops = value != 0;
        Ok(())
    };
}

/// An attribute's value, in the width that C reads it.
enum Value {
    Word(u32),
    Long(u64),
}

fn write(call: &mut Call, to: *mut u8, attribute: i32, address: u64) -> Outcome {
    match value(call, attribute, address)? {
        Value::Word(word) => put(to.cast(), word),
        Value::Long(long) => put(to.cast(), long),
    }
}

fn is_long(attribute: i32) -> bool {
    matches!(attribute, 1 | 3 | 4 | 5 | 7 | 11 | 12 | 14 | 17 | 18 | 19 | 20)
}

fn zero(to: *mut u8, attribute: i32) -> Outcome {
    match attribute {
        9 => put(to.cast(), -2i32),
        _ if is_long(attribute) => put(to.cast(), 0u64),
        _ => put(to.cast(), 0u32),
    }
}

/// Reserved addresses have a range even where nothing is mapped.
fn of_reservation(call: &Call, attribute: i32, address: u64) -> Result<Value, Code> {
    let (start, bytes) = call.memory.reservation(address).ok_or(code::INVALID_VALUE)?;
    match attribute {
        11 => Ok(Value::Long(start)),
        12 => Ok(Value::Long(bytes)),
        13 => Ok(Value::Word(0)),
        _ => Err(code::INVALID_VALUE),
    }
}

fn value(call: &mut Call, attribute: i32, address: u64) -> Result<Value, Code> {
    use Value::{Long, Word};
    let current = call.current()?;
    let device = call.contexts[&current].device;
    let Some(m) = call.memory.table.find(address).cloned() else {
        return of_reservation(call, attribute, address);
    };
    let block = call.memory.table.block(address).copied();
    if m.kind == Kind::Pool && block.is_none() {
        return Err(code::INVALID_VALUE);
    }
    let range = match m.kind {
        Kind::Pool => block.map_or((m.start, m.bytes), |b| (b.start, b.bytes)),
        Kind::Virtual => call.memory.reservation(address).unwrap_or((m.start, m.bytes)),
        _ => (m.start, m.bytes),
    };
    Ok(match attribute {
        1 => Long(m.context),
        2 => Word(if m.is_host() { 1 } else { 2 }),
        3 => Long(address),
        4 if m.is_host() || m.kind == Kind::Managed => Long(address),
        4 => return Err(code::INVALID_VALUE),
        6 => Word(u32::from(m.sync_memops)),
        7 => Long(block.map_or(m.buffer, |b| b.buffer)),
        8 => Word(u32::from(m.kind == Kind::Managed)),
        9 => Word(m.device),
        10 => Word(u32::from(m.kind == Kind::Device)),
        11 => Long(range.0),
        12 => Long(range.1),
        13 => Word(1),
        14 => Long(handle_types(call, address, &m)),
        15 => Word(0),
        16 => Word((m.readers >> device & 1 | (m.writers >> device & 1) << 1) as u32),
        17 => {
            let imported = call.memory.ipc.pool_of(m.start);
            Long(block.map(|b| b.pool).or(imported).unwrap_or(0))
        }
        18 => Long(m.bytes),
        19 => Long(m.start),
        20 => Long(m.object),
        21 => Word(0),
        _ => return Err(code::INVALID_VALUE),
    })
}

fn handle_types(call: &Call, address: u64, mapping: &Mapping) -> u64 {
    let pool = call.memory.table.block(address).map(|b| b.pool);
    let of_object =
        || call.memory.object(mapping.object).map(|o| o.properties.requested_handle_types);
    let types = match pool.and_then(|p| call.memory.pool(p)) {
        Some(pool) => Some(pool.properties.handle_types),
        None => of_object(),
    };
    types.map_or(0, |t| t as u64)
}
