#![forbid(unsafe_code)]
//! What is watched, as JSON. docs/SNAPSHOT.md says what each name means.

use super::{RANK, Watched};
use crate::device::Device;
use crate::error::{Error, sentence};
use crate::heap::BlockState;
use crate::json::{Page, Quoted, put};
use crate::process::{self, shortage};
use crate::scopes::{OUTSIDE, Scopes};
use crate::stats::fields;
use crate::sync::Lock;

/// The form of a snapshot; it changes when a reader of the old one could not read the new one.
const VERSION: u32 = 1;

/// Every scope.
pub(super) fn scopes(watched: &mut Watched) -> Result<String, Error> {
    let mut page = Page::default();
    scope_list(&mut page, watched.scopes.get_or_insert_default());
    page.whole()
}

fn scope_list(page: &mut Page, scopes: &Scopes) {
    put!(page, "[");
    let mut first = true;
    for (number, parent, name, runs, figures) in scopes.each() {
        page.next(&mut first);
        put!(page, "{{\"scope\":{number},\"parent\":{parent},\"name\":{},", Quoted(name));
        put!(page, "\"path\":{},\"runs\":{runs},", Quoted(&scopes.path(number)));
        put!(page, "\"live_bytes\":{},\"live_count\":{},", figures.live_bytes, figures.live_count);
        put!(page, "\"peak_bytes\":{},", figures.peak_bytes);
        put!(
            page,
            "\"total_bytes\":{},\"total_count\":{}}}",
            figures.total_bytes,
            figures.total_count
        );
    }
    put!(page, "]");
}

/// The live blocks of a scope.
pub(super) fn leaks(scopes: &Scopes, scope: u32) -> Result<String, Error> {
    let mut page = Page::default();
    put!(page, "[");
    let mut first = true;
    for (address, block) in scopes.live_in(scope)? {
        page.next(&mut first);
        put!(page, "{{\"address\":{address},\"bytes\":{},", block.bytes);
        put!(page, "\"requested\":{},\"device\":{},", block.requested, block.device);
        put!(page, "\"stream\":{},\"scope\":{},", block.stream, Quoted(&scopes.path(block.scope)));
        put!(page, "\"run\":{},\"label\":{}}}", block.run, Quoted(scopes.label(address)));
    }
    put!(page, "]");
    page.whole()
}

/// Everything.
pub(super) fn snapshot(
    devices: impl Iterator<Item = &'static Device>,
    watched: &Lock<Watched, RANK>,
) -> Result<String, Error> {
    let mut page = Page::default();
    put!(page, "{{\"format\":\"cuddy-snapshot\",\"version\":{VERSION},");
    put!(page, "\"library\":\"{}\",", env!("CARGO_PKG_VERSION"));
    put!(page, "\"time_us\":{},\"devices\":[", super::now_us());
    let mut first = true;
    for device in devices {
        page.next(&mut first);
        device_part(&mut page, device, watched)?;
    }
    put!(page, "],\"options\":{{");
    for (place, option) in process::options()?.iter().enumerate() {
        let comma = if place == 0 { "" } else { "," };
        put!(page, "{comma}\"{}\":{}", option.row.name, Quoted(&option.value));
    }
    put!(page, "}},\"out_of_memory\":");
    shortage::put_last(&mut page);
    put!(page, ",\"scopes\":");
    let mut watched = watched.lock();
    scope_list(&mut page, watched.scopes.get_or_insert_default());
    history(&mut page, &watched);
    put!(page, "}}\n");
    page.whole()
}

fn history(page: &mut Page, watched: &Watched) {
    let (noted, lost) = watched.journal.counts();
    put!(page, ",\"history\":{{\"capacity\":{},", watched.journal.capacity());
    put!(page, "\"noted\":{noted},\"lost\":{lost},\"columns\":[");
    put!(page, "\"time_us\",\"kind\",\"device\",\"stream\",\"address\",\"bytes\",\"requested\",");
    put!(page, "\"scope\",\"thread\"],\"events\":[");
    let mut first = true;
    for it in watched.journal.entries() {
        page.next(&mut first);
        put!(page, "\n[{},\"{}\",{},", it.time_us, it.kind.name(), it.device);
        put!(page, "{},{},{},{},", it.stream, it.address, it.bytes, it.requested);
        put!(page, "{},{}]", it.scope, it.thread);
    }
    put!(page, "]}}");
}

fn device_part(
    page: &mut Page,
    device: &Device,
    watched: &Lock<Watched, RANK>,
) -> Result<(), Error> {
    let (stats, blocks) = device.layout()?;
    put!(page, "\n{{\"device\":{},\"stats\":{{", device.id().0);
    let told = sentence!("{stats:?}");
    let mut first = true;
    for (name, value) in fields(&told) {
        page.next(&mut first);
        put!(page, "\"{name}\":{value}");
    }
    put!(page, "}},\"segments\":[");
    let watched = watched.lock();
    // A segment: what is mapped without a gap in one pool.
    let mut open: Option<(u32, u64)> = None;
    let mut first = true;
    for (pool, block, stream) in &blocks {
        let (state, mapped) = match block.state {
            BlockState::Live => ("live", true),
            BlockState::Limbo => ("limbo", true),
            BlockState::Free => ("free", true),
            BlockState::Claimed { mapped } => ("claimed", mapped),
            BlockState::Gap => ("gap", false),
        };
        if !mapped {
            continue;
        }
        if open != Some((pool.0, block.address.0)) {
            put!(page, "{}", if open.is_some() { "]}" } else { "" });
            page.next(&mut first);
            put!(page, "\n{{\"pool\":{},\"address\":{},\"blocks\":[", pool.0, block.address.0);
        } else {
            put!(page, ",");
        }
        open = Some((pool.0, block.address.0 + block.bytes));
        put!(page, "{{\"bytes\":{},\"requested\":{},", block.bytes, block.requested);
        put!(page, "\"state\":\"{state}\",\"stream\":{stream}");
        let known = watched.scopes.as_ref().and_then(|scopes| scopes.get(block.address.0));
        if let Some(known) = known.filter(|_| block.state == BlockState::Live) {
            put!(page, ",\"scope\":{},\"run\":{}", known.scope, known.run);
            let label = watched.scopes.as_ref().map_or("", |it| it.label(block.address.0));
            if !label.is_empty() {
                put!(page, ",\"label\":{}", Quoted(label));
            }
        } else {
            put!(page, ",\"scope\":{OUTSIDE},\"run\":0");
        }
        put!(page, "}}");
    }
    put!(page, "{}]}}", if open.is_some() { "]}" } else { "" });
    Ok(())
}
