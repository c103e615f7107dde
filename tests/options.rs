//! The options in the manual are those of the table, and each of them does something.

mod common;

use std::fs;

use cuddy::options::{TABLE, manual};

#[test]
fn the_manual_has_the_table() {
    common::compare(
        "docs/OPTIONS.md",
        &format!(
            "# Options\n\n\
             `CUDDY_CONF=\"key:value,key:value\"` sets options in the environment; \
             `cuddy_set_option()` sets them in a\nprogram. `cuddy doctor` lists what is in force \
             and where each value came from.\n\n\
             An entry that cannot be used never stops a program: it is left out, and said once on \
             stderr. Bytes are plain\nnumbers or have a unit: `B`, `KiB`, `MiB`, `GiB` or `TiB`, \
             as in `1.5GiB`.\n\n{}\n\
             `log` writes one line for each of them, with the time, the process and the figures in \
             bytes, and nothing for\nwhat the cache serves:\n\n\
             ```text\n\
             1796277800.798913 pid=13169 event=device device=0 bytes=85899345920 backing=pages \
             name=\"Simulated GPU 0 (simcuda)\" cuddy=0.1.0\n\
             1796277800.802526 pid=13169 event=growth device=0 bytes=10485760 allocated=10485760 \
             reserved=10485760\n\
             1796277800.802592 pid=13169 event=failed bytes=96636764160 \
             status=CUDDY_ERROR_OUT_OF_MEMORY why=\"90.0 GiB (96636764160 bytes) were asked for on device 0, ...\"\n\
             ```\n\n\
             The file is opened for each line, at its end: processes may share it, and it may be \
             moved away meanwhile. Programs\nwith special rights (setuid) read no `CUDDY_CONF`.\n",
            manual()
        ),
    );
}

#[test]
fn every_option_is_read_somewhere() {
    fn code(folder: &str) -> String {
        let entries = fs::read_dir(folder).expect("src can be read");
        let paths = entries.map(|entry| entry.expect("src can be read").path());
        let text = paths.map(|path| match path.is_dir() {
            true => code(path.to_str().expect("a name in UTF-8")),
            false => fs::read_to_string(path).expect("a source can be read"),
        });
        text.collect()
    }
    let code = ["src/device", "src/process"].map(code).concat();
    for row in &TABLE {
        let read = format!(".{}", row.name);
        assert!(code.contains(&read), "nothing reads the option {}", row.name);
    }
}
