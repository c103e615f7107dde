//! The **control API**: what a test asks of the simulator and no program of a GPU. Documented in
//! `include/simcuda.h`.
//!
//! Every function may be called from any thread, and none is counted as a driver call. A function
//! that can refuse answers -1 and leaves a text for `simcuda_error`.
#![allow(missing_docs, clippy::missing_safety_doc)]

use crate::api::module::text;
use crate::api::put_text;
use crate::call::{Call, control};
use crate::checker::{Access, AccessKind};
use crate::config::{Config, parse_mode, parse_schedule};
use crate::faults::{Meeting, Rule, When, known};
use crate::kernels::Kernels;
use crate::memory::budget::Budget;

/// Answers 0, or -1 and keeps the complaint.
fn say(call: &mut Call, result: Result<(), String>) -> i32 {
    match result {
        Ok(()) => 0,
        Err(why) => {
            call.complaint = why;
            -1
        }
    }
}

fn name(at: *const u8) -> String {
    text(at).unwrap_or_default()
}

/// A control function that can refuse.
fn refusable(body: impl FnOnce(&mut Call) -> Result<(), String>) -> i32 {
    control(-1, |call| {
        let result = body(call);
        say(call, result)
    })
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn simcuda_configure(key: *const u8, value: *const u8) -> i32 {
    refusable(|call| {
        if call.started {
            return Err("simcuda_configure comes before cuInit or after simcuda_reset".to_owned());
        }
        let (key, value) = (name(key), name(value));
        let judged = Config::default().set(&key, &value).and_then(|()| match key.as_str() {
            "kernels" if !value.is_empty() => Kernels::default().declare_file(&value),
            _ => Ok(()),
        });
        judged.map_err(|why| format!("{key}={value}: {why}"))?;
        call.overrides.push((key, value));
        Ok(())
    })
}

#[unsafe(no_mangle)]
pub extern "C" fn simcuda_reset() {
    control((), |call| {
        crate::journal::end(call);
        crate::host_touch::watch_nothing();
        call.reset();
        call.wake();
    });
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn simcuda_error(buffer: *mut u8, room: u64) -> i32 {
    control(-1, |call| put_text(buffer, capped(room), &call.complaint).map_or(-1, |()| 0))
}

fn capped(room: u64) -> i32 {
    i32::try_from(room).unwrap_or(i32::MAX)
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn simcuda_schedule(schedule: *const u8) -> i32 {
    refusable(|call| {
        let schedule = parse_schedule(&name(schedule))?;
        call.engine.set_schedule(schedule);
        Ok(())
    })
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn simcuda_checker(mode: *const u8) -> i32 {
    refusable(|call| {
        let mode = parse_mode(&name(mode))?;
        call.engine.checker().set_mode(mode);
        crate::api::init::watch_touches(call);
        Ok(())
    })
}

#[unsafe(no_mangle)]
pub extern "C" fn simcuda_report_uninitialised(on: i32) {
    control((), |call| call.engine.checker().set_report_uninitialised(on != 0));
}

#[unsafe(no_mangle)]
pub extern "C" fn simcuda_report_count() -> u64 {
    control(u64::MAX, |call| call.engine.checker_ref().reports().len() as u64)
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn simcuda_report_text(index: u64, buffer: *mut u8, room: u64) -> i32 {
    refusable(|call| {
        let reports = call.engine.checker_ref().reports();
        let report = reports.get(index as usize).ok_or("no report of this number")?;
        put_text(buffer, capped(room), &report.to_string()).map_err(|_| "no buffer".to_owned())
    })
}

#[unsafe(no_mangle)]
pub extern "C" fn simcuda_reports_clear() {
    control((), |call| drop(call.engine.checker().take_reports()));
}

#[unsafe(no_mangle)]
pub extern "C" fn simcuda_accesses_checked() -> u64 {
    control(u64::MAX, |call| call.engine.checker_ref().accesses_checked())
}

#[unsafe(no_mangle)]
pub extern "C" fn simcuda_unknown_launches() -> u64 {
    control(u64::MAX, |call| call.engine.checker_ref().unknown_launches())
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn simcuda_kernel_accesses(kernel: *const u8, uses: *const u8) -> i32 {
    refusable(|call| call.kernels.declare(&name(kernel), &name(uses)))
}

fn add_fault(function: *const u8, code: i32, when: When) -> i32 {
    refusable(|call| {
        let function = name(function);
        call.faults.add(Rule::new(known(&function)?, code, when))
    })
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn simcuda_fault(
    function: *const u8,
    first: u64,
    every: u64,
    code: i32,
    after_effect: i32,
) -> i32 {
    add_fault(function, code, When::Counted { first, every, after: after_effect != 0 })
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn simcuda_fault_random(
    function: *const u8,
    per_million: u64,
    seed: u64,
    code: i32,
) -> i32 {
    add_fault(function, code, When::Random { per_million, state: seed })
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn simcuda_meet(
    function: *const u8,
    at: u64,
    first: Option<extern "C" fn(usize)>,
    argument: usize,
) -> i32 {
    let Some(first) = first else {
        return refusable(|_| Err("nobody to go first: the function is null".to_owned()));
    };
    add_fault(function, 0, When::Met { at, by: Meeting { function: first, argument } })
}

#[unsafe(no_mangle)]
pub extern "C" fn simcuda_faults_clear() {
    control((), |call| call.faults.clear());
}

#[unsafe(no_mangle)]
pub extern "C" fn simcuda_faults_fired() -> u64 {
    control(u64::MAX, |call| call.faults.fired)
}

fn budget(device: i32, change: impl FnOnce(&mut Budget)) -> i32 {
    refusable(|call| {
        let budget = usize::try_from(device).ok().and_then(|d| call.memory.budgets.get_mut(d));
        change(budget.ok_or("no such device, or cuInit has not been called")?);
        Ok(())
    })
}

#[unsafe(no_mangle)]
pub extern "C" fn simcuda_oom_above(device: i32, bytes: u64) -> i32 {
    budget(device, |budget| budget.refuse_from = bytes)
}

#[unsafe(no_mangle)]
pub extern "C" fn simcuda_others_use(device: i32, bytes: u64) -> i32 {
    budget(device, |budget| budget.others = bytes)
}

#[unsafe(no_mangle)]
pub extern "C" fn simcuda_total_memory(device: i32, bytes: u64) -> i32 {
    budget(device, |budget| budget.total = bytes)
}

fn device_number(device: i32, read: impl FnOnce(&Call, usize) -> u64) -> u64 {
    control(u64::MAX, |call| match usize::try_from(device) {
        Ok(d) if d < call.devices.len() => read(call, d),
        _ => 0,
    })
}

#[unsafe(no_mangle)]
pub extern "C" fn simcuda_used(device: i32) -> u64 {
    device_number(device, |call, d| call.memory.budgets[d].used)
}

#[unsafe(no_mangle)]
pub extern "C" fn simcuda_used_peak(device: i32) -> u64 {
    device_number(device, |call, d| call.memory.budgets[d].peak)
}

#[unsafe(no_mangle)]
pub extern "C" fn simcuda_used_peak_reset(device: i32) -> i32 {
    budget(device, |budget| budget.peak = budget.used)
}

#[unsafe(no_mangle)]
pub extern "C" fn simcuda_contexts_created(device: i32) -> u64 {
    device_number(device, |call, d| call.devices[d].contexts_created)
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn simcuda_objects(what: *const u8) -> u64 {
    control(u64::MAX, |call| {
        let what = name(what);
        let count = call.count(&what);
        count.unwrap_or_else(|| {
            call.complaint = format!("'{what}' is no kind of object");
            u64::MAX
        })
    })
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn simcuda_calls(function: *const u8) -> u64 {
    control(u64::MAX, |call| call.books.calls(&name(function)))
}

#[unsafe(no_mangle)]
pub extern "C" fn simcuda_calls_total() -> u64 {
    control(u64::MAX, |call| call.books.total)
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn simcuda_call_name(index: u64, buffer: *mut u8, room: u64) -> i32 {
    refusable(|call| {
        let called = call.books.called();
        let function = called.get(index as usize).ok_or("no function of this number was called")?;
        put_text(buffer, capped(room), function.name).map_err(|_| "no buffer".to_owned())
    })
}

#[unsafe(no_mangle)]
pub extern "C" fn simcuda_call_count(index: u64) -> u64 {
    control(u64::MAX, |call| call.books.called().get(index as usize).map_or(0, |f| f.calls))
}

#[unsafe(no_mangle)]
pub extern "C" fn simcuda_calls_clear() {
    control((), |call| call.books.clear());
}

#[unsafe(no_mangle)]
pub extern "C" fn simcuda_gate_open(gate: u64) {
    control((), |call| {
        call.engine.gate_open(gate);
        call.wake();
    });
}

#[unsafe(no_mangle)]
pub extern "C" fn simcuda_time_ns() -> u64 {
    control(u64::MAX, |call| call.engine.now_ns())
}

#[unsafe(no_mangle)]
pub extern "C" fn simcuda_driver_time_ns() -> u64 {
    control(u64::MAX, |call| call.books.driver_ns)
}

#[unsafe(no_mangle)]
pub extern "C" fn simcuda_advance(ns: u64) {
    control((), |call| call.engine.advance(ns));
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn simcuda_cost(function: *const u8, fixed_ns: u64, ns_per_mib: u64) {
    control((), |call| {
        let page = call.books.page_of(&name(function));
        call.books.set_cost(page, fixed_ns, ns_per_mib);
    });
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn simcuda_peek(address: u64, buffer: *mut u8, bytes: u64) -> i32 {
    if buffer.is_null() {
        return -1;
    }
    // SAFETY: not null, and the test vouches for `bytes` bytes there, its own.
    let into = unsafe { std::slice::from_raw_parts_mut(buffer, bytes as usize) };
    refusable(|call| {
        crate::machine::peek(&call.memory, address, into)
            .map_err(|fault| format!("nothing is mapped at {:#x}", fault.address))
    })
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn simcuda_poke(address: u64, buffer: *const u8, bytes: u64) -> i32 {
    if buffer.is_null() {
        return -1;
    }
    // SAFETY: not null, and the test vouches for `bytes` bytes there.
    let from = unsafe { std::slice::from_raw_parts(buffer, bytes as usize) };
    refusable(|call| {
        crate::machine::poke(&call.memory, address, from)
            .map_err(|fault| format!("nothing is mapped at {:#x}", fault.address))
    })
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn simcuda_threads(order: *const u8) -> i32 {
    refusable(|call| {
        let ordered = match name(order).as_str() {
            "ordered" => true,
            "separate" => false,
            other => return Err(format!("'{other}' is neither 'ordered' nor 'separate'")),
        };
        call.engine.set_threads_ordered(ordered);
        Ok(())
    })
}

#[unsafe(no_mangle)]
pub extern "C" fn simcuda_signal(tag: u64) {
    control((), |call| {
        let thread = call.key();
        call.engine.signal(thread, tag);
    });
}

#[unsafe(no_mangle)]
pub extern "C" fn simcuda_await(tag: u64) {
    control((), |call| {
        let thread = call.key();
        call.engine.await_signal(thread, tag);
    });
}

/// The host's own use of memory that devices can reach too.
fn host_use(address: u64, bytes: u64, label: *const u8, kind: AccessKind) -> i32 {
    refusable(|call| {
        let label = name(label);
        let mapping = call.memory.table.find(address).cloned();
        let within = |m: &crate::memory::table::Mapping| m.is_host() && bytes <= m.end() - address;
        let Some(mapping) = mapping.filter(within) else {
            return Err(format!("{address:#x} is not page-locked memory of this length"));
        };
        let offset = address - mapping.start;
        let access = Access { object: mapping.object, offset, bytes, kind };
        let thread = call.key();
        if call.engine.checker_ref().is_on() {
            call.engine.host_access(thread, &[access], &label);
        }
        Ok(())
    })
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn simcuda_host_write(at: u64, bytes: u64, label: *const u8) -> i32 {
    host_use(at, bytes, label, AccessKind::Write)
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn simcuda_host_read(at: u64, bytes: u64, label: *const u8) -> i32 {
    host_use(at, bytes, label, AccessKind::Read)
}
