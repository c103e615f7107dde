#![forbid(unsafe_code)]
//! The explanation of a request that found no memory, as JSON: docs/SNAPSHOT.md says what each name means.

use super::{Cause, Scene};
use crate::json::{Maybe, Page, Quoted, put};

impl Cause {
    fn name(self) -> &'static str {
        match self {
            Self::PoolLimit => "pool_limit",
            Self::Driver(_) => "driver",
            Self::Addresses => "addresses",
            Self::Device => "device",
            Self::Limit => "limit",
        }
    }
}

/// A limit, `None` where there is none.
fn limit(bytes: u64) -> Maybe {
    Maybe((bytes != u64::MAX).then_some(bytes))
}

impl Scene {
    /// Its names and values, without the braces around them.
    pub(crate) fn data(&self, page: &mut Page) {
        let (stats, figures) = (&self.stats, &self.figures);
        put!(page, "\"device\":{},\"requested\":{},", self.device, self.asked);
        put!(page, "\"alignment\":{},\"stream\":{},", self.alignment, self.stream);
        put!(page, "\"cause\":\"{}\",", self.cause().name());
        if let Cause::Driver(error) = self.cause() {
            put!(page, "\"driver_error\":\"{error}\",");
        }
        put!(page, "\"allocated\":{},\"active\":{},", stats.allocated, stats.active);
        put!(page, "\"reserved\":{},\"cached\":{},", stats.reserved, self.cached());
        put!(page, "\"quarantined\":{},\"limit\":{},", stats.quarantined, limit(stats.limit));
        put!(page, "\"live_block_count\":{},", stats.live_block_count);
        put!(page, "\"limbo_block_count\":{},", stats.limbo_block_count);
        let (own, any) = self.largest;
        put!(page, "\"largest_free\":{any},\"largest_free_own\":{own},");
        put!(page, "\"free_bytes\":{},\"free_count\":{},", figures.free, figures.free_blocks);
        let (free, total) = (self.driver.map(|it| it.0), self.driver.map(|it| it.1));
        put!(page, "\"device_free\":{},\"device_total\":{},", Maybe(free), Maybe(total));
        put!(page, "\"used_elsewhere\":{},", Maybe(self.used_elsewhere()));
        if let Some((most, reserved, allocated)) = self.pool {
            put!(page, "\"pool_limit\":{},\"pool_reserved\":{reserved},", limit(most));
            put!(page, "\"pool_allocated\":{allocated},");
        }
        put!(page, "\"waiting\":[");
        let mut first = true;
        for (handle, bytes) in self.waiting.iter().filter(|(_, bytes)| *bytes > 0) {
            page.next(&mut first);
            put!(page, "{{\"stream\":{handle},\"bytes\":{bytes}}}");
        }
        put!(page, "],\"advice\":{}", Quoted(self.advice()));
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::scene;
    use super::*;
    use crate::error::DriverError;

    fn told(scene: &Scene) -> String {
        let mut page = Page::default();
        scene.data(&mut page);
        page.whole().expect("there is memory")
    }

    #[test]
    fn every_figure_is_there_and_the_cause_has_a_name() {
        let mut scene = scene();
        let text = told(&scene);
        for part in [
            "\"requested\":536870912,\"alignment\":512,\"stream\":32512,\"cause\":\"limit\",",
            "\"limit\":1073741824,",
            "\"largest_free\":268435456,\"largest_free_own\":1048576,",
            "\"device_free\":2147483648,\"device_total\":4294967296,\"used_elsewhere\":1073741824,",
            "\"waiting\":[{\"stream\":32528,\"bytes\":134217728},{\"stream\":1,\"bytes\":67108864}],",
        ] {
            assert!(text.contains(part), "{part:?} is not in {text:?}");
        }
        scene.stats.limit = u64::MAX;
        scene.driver = None;
        let text = told(&scene);
        assert!(text.contains("\"cause\":\"device\"") && text.contains("\"limit\":null"), "{text}");
        assert!(text.contains("\"used_elsewhere\":null"), "{text}");
        scene.refused = Some(DriverError { function: "cuMemCreate", code: 2 });
        let error = "\"cause\":\"driver\",\"driver_error\":\"cuMemCreate returned 2 (CUDA_ERROR_OUT_OF_MEMORY)\"";
        assert!(told(&scene).contains(error));
        scene.pool = Some((1 << 29, 1 << 28, 1 << 20));
        let pool =
            "\"pool_limit\":536870912,\"pool_reserved\":268435456,\"pool_allocated\":1048576,";
        let text = told(&scene);
        assert!(text.contains("\"cause\":\"pool_limit\"") && text.contains(pool), "{text}");
    }
}
