#![forbid(unsafe_code)]
//! Graphs: which streams are being captured into which, and which pool owns what they use.
//!
//! A graph is *begun*, then *ended*, then destroyed. While it is begun its own stream is captured,
//! and whatever other streams have been seen to join it. The captured work of a stream is a stream of
//! its own here (a *captured slot*): it runs when the graph is launched, whenever and wherever that
//! is, so no order of the stream says anything about it. A pool's graphs share its captured slots.
//!
//! Pure: what the driver calls a capture is a number here.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use crate::error::{Error, sentence};
use crate::types::{PoolId, StreamSlot};

/// The most graphs of one device.
const MOST_GRAPHS: usize = 1 << 16;

/// A graph as its holders name it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct GraphName {
    /// Its place.
    pub place: u32,
    /// Which of those that ever had this place.
    pub generation: u32,
}

/// A stream that is captured, and the slot of its captured work.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Member {
    /// The stream.
    pub stream: StreamSlot,
    /// Its captured work.
    pub captured: StreamSlot,
}

/// One graph.
#[derive(Debug)]
pub(crate) struct Graph {
    /// The pool that its memory is of.
    pub pool: PoolId,
    /// Whether the pool was made for it.
    pub owns_pool: bool,
    /// The handle of its own stream: good while it is begun.
    pub handle: usize,
    /// The driver's number of the capture, once it is known.
    pub capture: Option<u64>,
    /// Whether the capture was found, not told: raised by the driver once the graph is gone.
    pub gone: Option<Arc<AtomicBool>>,
    /// Whether it is begun, and not ended.
    pub begun: bool,
    /// Its own stream, then those that joined.
    members: Vec<Member>,
}

#[derive(Debug, Default)]
struct Place {
    generation: u32,
    graph: Option<Graph>,
}

/// The graphs of a device.
#[derive(Debug, Default)]
pub(crate) struct Graphs {
    places: Vec<Place>,
}

impl Graphs {
    /// Begins a graph whose own stream is captured from now on.
    pub(crate) fn begin(
        &mut self,
        (pool, owns_pool): (PoolId, bool),
        handle: usize,
        own: Member,
    ) -> Result<GraphName, Error> {
        let host = |_| Error::HostOutOfMemory;
        let at = match self.places.iter().position(|place| place.graph.is_none()) {
            Some(at) => at,
            None if self.places.len() < MOST_GRAPHS => {
                self.places.try_reserve(1).map_err(host)?;
                self.places.push(Place::default());
                self.places.len() - 1
            }
            None => {
                return Err(Error::NotSupported(sentence!(
                    "a device has at most {MOST_GRAPHS} graphs at once: destroy those that are not \
                     needed"
                )));
            }
        };
        let mut members = Vec::new();
        members.try_reserve(1).map_err(host)?;
        members.push(own);
        let place = &mut self.places[at];
        place.generation = place.generation.wrapping_add(1).max(1);
        let (capture, gone, begun) = (None, None, true);
        place.graph = Some(Graph { pool, owns_pool, handle, capture, gone, begun, members });
        Ok(GraphName { place: at as u32, generation: place.generation })
    }

    /// The graph of this name.
    pub(crate) fn get(&mut self, name: GraphName) -> Result<&mut Graph, Error> {
        let place = self.places.get_mut(name.place as usize);
        let place = place.filter(|place| place.generation == name.generation);
        place.and_then(|place| place.graph.as_mut()).ok_or_else(|| {
            Error::InvalidGraph(sentence!(
                "there is no such graph: it was destroyed, or never begun"
            ))
        })
    }

    /// Forgets a graph.
    pub(crate) fn remove(&mut self, name: GraphName) -> Result<Graph, Error> {
        self.get(name)?;
        let graph = self.places[name.place as usize].graph.take();
        graph.ok_or(Error::Internal("a graph that was just there"))
    }

    /// The graphs that are begun.
    pub(crate) fn begun(&mut self) -> impl Iterator<Item = &mut Graph> {
        self.places.iter_mut().filter_map(|place| place.graph.as_mut()).filter(|graph| graph.begun)
    }

    /// The graphs whose captures were found, and their names.
    pub(crate) fn found(&self) -> impl Iterator<Item = (GraphName, &Graph)> {
        self.by_name().filter(|(_, graph)| graph.gone.is_some())
    }

    /// The same, to be changed.
    pub(crate) fn found_mut(&mut self) -> impl Iterator<Item = &mut Graph> {
        let graphs = self.places.iter_mut().filter_map(|place| place.graph.as_mut());
        graphs.filter(|graph| graph.gone.is_some())
    }

    fn by_name(&self) -> impl Iterator<Item = (GraphName, &Graph)> {
        (0..).zip(&self.places).filter_map(|(place, known)| {
            let name = GraphName { place, generation: known.generation };
            Some((name, known.graph.as_ref()?))
        })
    }

    /// The pool and the captured slot of a stream that is known to be captured.
    pub(crate) fn capturing(&self, stream: StreamSlot) -> Option<(PoolId, StreamSlot)> {
        let graphs = self.places.iter().filter_map(|place| place.graph.as_ref());
        graphs.filter(|graph| graph.begun).find_map(|graph| {
            let member = graph.members.iter().find(|member| member.stream == stream)?;
            Some((graph.pool, member.captured))
        })
    }
}

impl Graph {
    /// Notes that a stream joined.
    pub(crate) fn join(&mut self, member: Member) -> Result<(), Error> {
        if self.members.iter().any(|known| known.stream == member.stream) {
            return Ok(());
        }
        self.members.try_reserve(1).map_err(|_| Error::HostOutOfMemory)?;
        self.members.push(member);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn member(stream: u32) -> Member {
        Member { stream: StreamSlot(stream), captured: StreamSlot(stream + 100) }
    }

    #[test]
    fn streams_are_captured_from_begin_to_end() {
        let mut graphs = Graphs::default();
        let pool = PoolId(3);
        let name = graphs.begin((pool, true), 0x5000, member(7)).expect("room");
        assert_eq!(graphs.capturing(StreamSlot(7)), Some((pool, StreamSlot(107))));
        assert_eq!(graphs.capturing(StreamSlot(8)), None);
        graphs.get(name).expect("there").join(member(8)).expect("room");
        graphs.get(name).expect("there").join(member(8)).expect("room");
        assert_eq!(graphs.capturing(StreamSlot(8)), Some((pool, StreamSlot(108))));
        assert_eq!(graphs.begun().count(), 1);
        graphs.get(name).expect("there").begun = false;
        assert_eq!(graphs.capturing(StreamSlot(7)), None);
        assert_eq!(graphs.begun().count(), 0);
        assert_eq!(graphs.remove(name).expect("there").pool, pool);
        assert!(matches!(graphs.get(name), Err(Error::InvalidGraph(_))));
    }

    #[test]
    fn a_place_that_is_used_again_is_another_graph() {
        let mut graphs = Graphs::default();
        let first = graphs.begin((PoolId(1), false), 1, member(1)).expect("room");
        graphs.remove(first).expect("there");
        let second = graphs.begin((PoolId(1), false), 1, member(1)).expect("room");
        assert_eq!(first.place, second.place);
        assert!(graphs.get(first).is_err() && graphs.get(second).is_ok());
        assert!(graphs.get(GraphName { place: 9, generation: 1 }).is_err());
    }
}
