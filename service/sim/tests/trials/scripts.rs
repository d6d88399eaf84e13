//! Scripts under `tests/scripts` tell what their output files say.
//! `drainwell-sim script FILE` prints what a changed one tells now.

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
    for path in scripts {
        let (told, good) = script::play(&std::fs::read_to_string(&path).unwrap()).unwrap();
        let expected = std::fs::read_to_string(path.with_extension("out")).unwrap_or_default();
        assert_eq!(told, expected, "{}", path.display());
        assert!(
            good,
            "{}: not all that is expected came true",
            path.display()
        );
    }
}
