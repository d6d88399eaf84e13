//! Scripts under `tests/scripts` tell what their output files say. With
//! `DRAINWELL_SCRIPTS_UPDATE=1` the files are written anew instead, for a
//! person to read the difference.

use std::path::{Path, PathBuf};

use drainwell_sim::trial::script;

#[test]
fn scripts_tell_what_is_written_beside_them() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/scripts");
    let all = std::fs::read_dir(&folder).unwrap();
    let mut scripts: Vec<PathBuf> = all.map(|entry| entry.unwrap().path()).collect();
    scripts.retain(|path| path.extension().is_some_and(|e| e == "txt"));
    scripts.sort();
    assert!(!scripts.is_empty());
    let update = std::env::var_os("DRAINWELL_SCRIPTS_UPDATE").is_some();
    for path in scripts {
        let (told, good) = script::play(&std::fs::read_to_string(&path).unwrap()).unwrap();
        let output = path.with_extension("out");
        if update {
            std::fs::write(&output, &told).unwrap();
        }
        let expected = std::fs::read_to_string(&output).unwrap_or_default();
        assert_eq!(told, expected, "{}", path.display());
        assert!(
            good,
            "{}: not all that is expected came true:\n{told}",
            path.display()
        );
    }
}
