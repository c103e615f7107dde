//! `cuddy report`: a page of a snapshot, as headless Chromium shows it. Where there is no Chromium, only
//! what the page is made of is looked at.

use std::fs;
use std::path::Path;
use std::process::{Command, Output};
use std::time::Instant;

/// A snapshot whose history has as many steps as asked for: each allocates and frees, a few keep.
fn snapshot(steps: u64) -> String {
    told(steps, false)
}

/// The same; with stacks if wanted.
fn told(steps: u64, stacks: bool) -> String {
    let mut events = Vec::new();
    // A function called from two places, under Cuddy's own.
    let frames = "{\"name\":\"cuddy_malloc\",\"module\":\"/lib/libcuddy.so.0\",\"offset\":16},\
                  {\"name\":\"linear\",\"file\":\"model.py\",\"line\":12},\
                  {\"name\":\"forward\",\"file\":\"model.py\",\"line\":40},\
                  {\"name\":\"evaluate\",\"file\":\"train.py\",\"line\":9},\
                  {\"name\":\"allgather\",\"module\":\"libapp.so\",\"offset\":64}";
    let stack = |step: u64| match (stacks, step % 4) {
        (false, _) => "",
        (true, 0) => ",[0,1,2]",
        (true, 1) => ",[0,1,3]",
        (true, _) => ",[0,4]",
    };
    for step in 0..steps {
        let (time, address) = (1_000_000 + 10 * step, 512 * (1 + step % 1000));
        let bytes = if step == steps / 2 { 64 << 20 } else { 512 * (1 + step % 50) };
        let scope = 1 + step % 2;
        events.push(format!(
            "[{time},\"alloc\",0,1,{address},{bytes},{bytes},{scope},1{}]",
            stack(step)
        ));
        events.push(format!("[{},\"free\",0,1,{address},{bytes},{bytes},{scope},1]", time + 5));
    }
    events
        .push(format!("[{},\"out_of_memory\",0,1,0,0,1099511627776,2,1]", 1_000_000 + 10 * steps));
    let counters = "allocated allocated_peak active reserved reserved_peak largest_free live_block_count \
                    malloc_count hit_count driver_call_count out_of_memory_count";
    let bytes = |name: &str| if name == "reserved" { 128 << 20 } else { 2 << 20 };
    let stats: Vec<String> =
        counters.split_whitespace().map(|name| format!("\"{name}\":{}", bytes(name))).collect();
    let shortage = "{\"time_us\":1,\"device\":0,\"requested\":1099511627776,\"cause\":\"limit\",\"allocated\":5242880,\
        \"active\":6291456,\"reserved\":8388608,\"cached\":2097152,\"limit\":16777216,\"largest_free\":1048576,\
        \"largest_free_own\":0,\"free_bytes\":2097152,\"free_count\":2,\"device_free\":4194304,\"device_total\":33554432,\
        \"used_elsewhere\":20971520,\"waiting\":[{\"stream\":4660,\"bytes\":1048576}],\"scopes\":[{\"scope\":1,\"path\":\
        \"training\",\"live_bytes\":5242880}],\"advice\":\"a\",\"message\":\"It could not be had.\"}";
    let scope = |number: u32, path: &str| {
        format!(
            "{{\"scope\":{number},\"parent\":0,\"name\":\"{path}\",\"path\":\"{path}\",\"runs\":3,\"live_bytes\":9,\
             \"live_count\":1,\"peak_bytes\":99,\"total_bytes\":999,\"total_count\":9}}"
        )
    };
    let block = |bytes: u64, state: &str, label: &str| {
        format!(
            "{{\"bytes\":{bytes},\"requested\":{bytes},\"state\":\"{state}\",\"stream\":1,\"scope\":1,\"run\":2,\
             \"label\":\"{label}\"{}}}",
            if stacks && state == "live" { ",\"stack\":[0,1,3]" } else { "" }
        )
    };
    format!(
        "{{\"format\":\"cuddy-snapshot\",\"version\":1,\"library\":\"0.1.0\",\"time_us\":{},\"devices\":[{{\
         \"device\":0,\"stats\":{{{}}},\"segments\":[{{\"pool\":0,\"address\":1048576,\"blocks\":[{},{}]}}]}}],\
         \"out_of_memory\":{shortage},\"scopes\":[{},{},{}],\"history\":{{\"capacity\":9,\"noted\":{},\"lost\":0,\"columns\":[\"time_us\",\
         \"kind\",\"device\",\"stream\",\"address\",\"bytes\",\"requested\",\"scope\",\"thread\"{}],\"events\":[{}]}}{}}}",
        2_000_000 + 10 * steps,
        stats.join(","),
        block(2 << 20, "live", "</script><b>label"),
        block(1 << 20, "free", ""),
        scope(0, ""),
        scope(1, "training"),
        scope(2, "training/step"),
        events.len(),
        if stacks { ",\"stack\"" } else { "" },
        events.join(","),
        if stacks { format!(",\"frames\":[{frames}]") } else { String::new() },
    )
}

fn report(snapshot: &Path, page: &Path) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_cuddy"));
    command.arg("report").arg(snapshot).arg("-o").arg(page).output().expect("it runs")
}

/// Writes the snapshot and its page into a folder; the page.
fn made(folder: &Path, snapshot: &str) -> String {
    let (file, page) = (folder.join("memory.json"), folder.join("memory.html"));
    fs::write(&file, snapshot).expect("the folder is ours");
    let ended = report(&file, &page);
    assert!(ended.status.success(), "{}", String::from_utf8_lossy(&ended.stderr));
    fs::read_to_string(page).expect("it was written")
}

/// What Chromium makes of the page with a script behind it, and what its console says.
fn in_chromium(folder: &Path, page: &str, script: &str) -> Option<(String, String)> {
    let path = folder.join("tried.html");
    let tried = page.replace("</body>", &format!("<script>{{ {script} }}</script></body>"));
    fs::write(&path, tried).expect("the folder is ours");
    let mut command = Command::new("chromium");
    command.args(["--headless", "--no-sandbox", "--disable-gpu", "--enable-logging=stderr"]);
    command.args(["--window-size=1240,2000", "--virtual-time-budget=5000", "--dump-dom"]);
    let profile = format!("--user-data-dir={}", folder.join("profile").display());
    let Ok(ended) = command.arg(profile).arg(format!("file://{}", path.display())).output() else {
        eprintln!("\nSKIPPED: the page in a browser: chromium is not installed\n");
        return None;
    };
    let told = String::from_utf8_lossy(&ended.stderr);
    let console = told.lines().filter(|line| line.contains("CONSOLE")).collect::<Vec<_>>();
    Some((String::from_utf8_lossy(&ended.stdout).into_owned(), console.join("\n")))
}

#[test]
fn the_page_loads_and_a_click_chooses_a_moment() {
    let folder = tempfile::tempdir().expect("a folder");
    let page = made(folder.path(), &snapshot(500));
    // No network: nothing is loaded from anywhere.
    for word in ["src=\"http", "href=\"http", "@import", "fetch(", "XMLHttpRequest"] {
        assert!(!page.contains(word), "the page has {word}");
    }
    let script = "
        const peak = document.querySelector('#peaks button');
        document.title = peak.textContent;
        peak.click();
        const peak_at = place;
        const chosen = document.getElementById('moment').textContent;
        const box = plot.over.getBoundingClientRect();
        plot.setCursor({ left: box.width / 4, top: 10 });
        plot.over.dispatchEvent(new MouseEvent('click', { bubbles: true }));
        const clicked = place;
        dispatchEvent(new KeyboardEvent('keydown', { key: 'ArrowRight' }));
        document.body.insertAdjacentHTML('beforeend',
            `<p id='tried'>${chosen}|${clicked > 0}|${place - clicked}|${document.querySelectorAll('canvas').length}</p>
             <p id='waste-tried'>${waste.data[1].filter((it) => it === null || it < 0 || it > 100).length}|${Math.max(...waste.data[1]).toFixed(1)}|${waste.data[1][peak_at].toFixed(1)}</p>`);
        document.getElementById('theme').click();";
    let Some((shown, console)) = in_chromium(folder.path(), &page, script) else { return };
    assert_eq!(console, "", "the console is silent");
    assert!(shown.contains("data-ready=\"yes\""), "the script came to its end");
    assert!(
        shown.contains("peak 66.0 MiB at 0.002500 s") || shown.contains("peak 66.0 MiB"),
        "the peak"
    );
    let tried = shown.split("id=\"tried\">").nth(1).expect("the script ran");
    let tried = tried.split("</p>").next().unwrap_or_default();
    assert!(tried.starts_with("At 0.002500 s: 66.0 MiB live"), "{tried}");
    assert!(tried.ends_with("|true|1|3"), "a click, a key, three canvases: {tried}");
    // Of 128 MiB reserved 2 MiB are live but for the steps, and 66 MiB at the peak.
    let wasted = shown.split("id=\"waste-tried\">").nth(1).expect("the script ran");
    let wasted = wasted.split("</p>").next().unwrap_or_default();
    assert_eq!(wasted, "0|98.4|48.4");
    for words in [
        "1.00 TiB",
        "It could not be had.",
        "used elsewhere 20.0 MiB",
        "0x1234",
        "training/step",
        "&lt;/script&gt;&lt;b&gt;label",
    ] {
        assert!(shown.contains(words), "it does not say {words}");
    }
}

/// What a script put into the element of that name.
fn tried(shown: &str, name: &str) -> String {
    let rest = shown.split(&format!("id=\"{name}\">")).nth(1).expect("the script ran");
    rest.split("</p>").next().unwrap_or_default().replace("&gt;", ">")
}

#[test]
fn the_map_shows_the_blocks_of_the_chosen_moment() {
    let folder = tempfile::tempdir().expect("a folder");
    let page = made(folder.path(), &snapshot(500));
    let script = "
        const blocks = () => [...new Set(rows.flatMap((row) => row.blocks))].map((it) => it.bytes / 1024).join(' ');
        const seen = [blocks()];
        choose(device().timeline.peaks[0]);
        seen.push(blocks(), at('when').textContent);
        choose(0);
        seen.push(blocks());
        choose(null);
        seen.push(blocks(), at('when').textContent);
        const before = zooms.row;
        at('nearer').click();
        seen.push(before / zooms.row);
        choose(device().failures[0].point);
        const key = (name) => at('map').dispatchEvent(new KeyboardEvent('keydown', { key: name, bubbles: true }));
        key('ArrowRight');
        seen.push(at('block').textContent, place === device().failures[0].point);
        const canvas = at('map');
        choose(null);
        canvas.dispatchEvent(new MouseEvent('mousemove', { clientX: canvas.getBoundingClientRect().left + LEFT + 3, clientY: canvas.getBoundingClientRect().top + 3 }));
        seen.push(at('block').textContent, at('pages').textContent);
        const dot = canvas.getContext('2d').getImageData((LEFT + 3) * devicePixelRatio, 3 * devicePixelRatio, 1, 1).data;
        seen.push([...dot].join(' '));
        dispatchEvent(new KeyboardEvent('keydown', { key: 'b' }));
        seen.push(at('bands').value, at('keys').textContent.includes('up to 16 MiB'));
        document.body.insertAdjacentHTML('beforeend', '<p id=map-tried></p>');
        at('map-tried').textContent = seen.join('|');";
    let Some((shown, console)) = in_chromium(folder.path(), &page, script) else { return };
    assert_eq!(console, "", "the console is silent");
    let seen = tried(&shown, "map-tried");
    let seen: Vec<&str> = seen.split('|').collect();
    // Now: one block. At the peak the large one beside it. Before all: the one that is still there.
    assert_eq!(seen[..6], ["2048", "65536 2048", "at 0.002500 s", "2048", "2048", "now"]);
    assert_eq!(seen[6], "2");
    assert!(seen[7].starts_with("0x100000: 2.00 MiB, live, training"), "{}", seen[7]);
    assert_eq!(seen[8], "true", "the map's arrows move in the map");
    assert!(seen[9].starts_with("0x100000: 2.00 MiB, live, 2.00 MiB asked for, training (run 2)"));
    assert!(seen[10].contains("of 64 pages of 2 MiB 62 have nothing live"), "{}", seen[10]);
    assert_eq!(seen[11], "59 130 246 255", "the block is there, in its scope's colour");
    assert_eq!(seen[12..], ["by_size", "true"]);
}

#[test]
fn call_sites_are_summed_by_function_and_show_their_callers() {
    let folder = tempfile::tempdir().expect("a folder");
    let page = made(folder.path(), &told(500, true));
    let script = "
        const lines = () => [...at('functions').rows].slice(1).map((row) => [...row.cells].map((cell) => cell.textContent).join(' ')).join(';');
        const seen = [at('unknown').hidden, lines(), at('callers').textContent];
        [...at('functions').querySelectorAll('th button')].find((it) => it.textContent.startsWith('over time')).click();
        seen.push(lines());
        [...at('functions').querySelectorAll('td button')].find((it) => it.textContent === 'linear').click();
        seen.push(at('callers').textContent);
        step(1);
        seen.push(at('block').textContent);
        choose(device().timeline.peaks[0]);
        seen.push(lines(), at('when-sites').textContent);
        document.body.insertAdjacentHTML('beforeend', '<p id=sites-tried></p>');
        at('sites-tried').textContent = seen.join('|');";
    let Some((shown, console)) = in_chromium(folder.path(), &page, script) else { return };
    assert_eq!(console, "", "the console is silent");
    let seen = tried(&shown, "sites-tried");
    let seen: Vec<&str> = seen.split('|').collect();
    assert_eq!(seen[0], "true");
    let linear = "linear 2.00 MiB 1 3.11 MiB 250";
    let gather = "allgather 0 B 0 67.1 MiB 250";
    assert_eq!(seen[1], format!("{linear};{gather}"));
    assert!(seen[2].contains("2.00 MiB evaluate train.py:9"), "{}", seen[2]);
    assert_eq!(seen[3], format!("{gather};{linear}"));
    assert!(seen[4].contains("forward model.py:40") && seen[4].contains("evaluate train.py:9"));
    assert!(seen[5].contains("linear model.py:12 \u{2190} evaluate train.py:9"), "{}", seen[5]);
    // At the peak the large block is live too.
    let then = "allgather 64.0 MiB 1 67.1 MiB 250;linear 2.00 MiB 1 3.11 MiB 250";
    assert_eq!(seen[6..], [then, "at 0.002500 s"]);
}

/// What is drawn is bounded; how long it took is said, and decides nothing.
#[test]
fn a_million_events_are_a_small_page() {
    let folder = tempfile::tempdir().expect("a folder");
    let page = made(folder.path(), &snapshot(500_000));
    assert!(page.len() < 1 << 20, "{} bytes", page.len());
    let begin = Instant::now();
    if in_chromium(folder.path(), "<body></body>", "").is_none() {
        return;
    }
    let empty = begin.elapsed();
    let script = "
        choose(1000);
        const { timeline, moments } = device();
        const changes = moments.changes.reduce((sum, list) => sum + list.length, 0);
        document.body.insertAdjacentHTML('beforeend', `<p id='few-tried'>${timeline.seconds.length <= 2000}|${moments.changes.length === timeline.seconds.length}|${changes <= 150000}</p>`);";
    let (shown, console) = in_chromium(folder.path(), &page, script).expect("it ran before");
    let whole = begin.elapsed() - empty;
    eprintln!("a page of 1 000 001 events: {whole:?} in Chromium; an empty page: {empty:?}");
    assert_eq!(console, "");
    assert!(shown.contains("data-ready=\"yes\"") && shown.contains("peak 66.0 MiB"));
    assert_eq!(tried(&shown, "few-tried"), "true|true|true");
}

#[test]
fn what_is_no_snapshot_is_refused_in_words() {
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("no.json");
    let later = snapshot(1).replace("\"version\":1", "\"version\":2");
    for (text, words) in
        [("{", "no snapshot"), ("[]", "dump_snapshot"), (later.as_str(), "cuddy-snapshot 2")]
    {
        fs::write(&file, text).expect("the folder is ours");
        let ended = report(&file, &folder.path().join("no.html"));
        let said = String::from_utf8_lossy(&ended.stderr);
        assert!(ended.status.code() == Some(2) && said.contains(words), "{said}");
        assert!(!folder.path().join("no.html").exists());
    }
}
