//! What is missing is said in one sentence.

use std::os::unix::fs::PermissionsExt as _;
use std::os::unix::process::CommandExt as _;
use std::path::Path;
use std::process::Command;

use crate::{lab, said, skipped};

/// A user who is not root.
const UNPRIVILEGED: u32 = 65_534;

/// The commands that need to be root, and the check of this program itself,
/// which is passed over instead.
fn refuses(run: impl Fn(&[&str]) -> Command, want: &str) {
    for arguments in [&["link", "--", "true"][..], &["clean"], &["check", "wake"]] {
        let output = run(arguments).output().unwrap();
        let said = said(&output);
        assert_eq!(output.status.code(), Some(1), "{arguments:?}: {said}");
        assert!(
            said.starts_with("dunlin-lab: ") && said.contains(want),
            "{said}"
        );
        assert_eq!(said.lines().count(), 1, "{said}");
    }
    let output = run(&["link", "--self-test", "--short"]).output().unwrap();
    assert!(output.status.success());
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(said.contains("SKIPPED") && said.contains(want), "{said}");
}

/// The program where everybody may run it.
fn public(folder: &Path) -> String {
    let program = folder.join("dunlin-lab");
    std::fs::copy(env!("CARGO_BIN_EXE_dunlin-lab"), &program).unwrap();
    let all = std::fs::Permissions::from_mode(0o755);
    std::fs::set_permissions(folder, all).unwrap();
    program.display().to_string()
}

#[test]
fn without_root() {
    if skipped() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let program = public(folder.path());
    let run = |arguments: &[&str]| {
        let mut command = Command::new(&program);
        command
            .args(arguments)
            .uid(UNPRIVILEGED)
            .gid(UNPRIVILEGED)
            .current_dir("/");
        command
    };
    refuses(run, "run it as root");
}

#[test]
fn without_capabilities() {
    if skipped() || is_not_installed("setpriv") {
        return;
    }
    let run = |arguments: &[&str]| {
        let mut command = Command::new("setpriv");
        command.args(["--bounding-set=-sys_admin", "--inh-caps=-sys_admin"]);
        command
            .arg(env!("CARGO_BIN_EXE_dunlin-lab"))
            .args(arguments);
        command
    };
    refuses(
        run,
        "it needs CAP_SYS_ADMIN (in a container: run it with --privileged)",
    );
}

#[test]
fn without_a_tun_device() {
    if skipped() || is_not_installed("unshare") {
        return;
    }
    let run = |arguments: &[&str]| {
        let mut command = Command::new("unshare");
        let script = "mount -t tmpfs none /dev/net && exec \"$0\" \"$@\"";
        command.args(["--mount", "sh", "-c", script]);
        command
            .arg(env!("CARGO_BIN_EXE_dunlin-lab"))
            .args(arguments);
        command
    };
    refuses(run, "cannot open /dev/net/tun (No such file or directory");
}

#[test]
fn without_the_ip_command() {
    if skipped() {
        return;
    }
    let run = |arguments: &[&str]| {
        let mut command = lab(arguments);
        command.env("PATH", "/nowhere");
        command
    };
    refuses(run, "there is no `ip` command: install iproute2");
}

fn is_not_installed(program: &str) -> bool {
    let missing = Command::new(program).arg("--version").output().is_err();
    if missing {
        eprintln!("skipped: {program} is not installed");
    }
    missing
}

#[test]
fn without_room_for_captures() {
    if skipped() || is_not_installed("unshare") {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let script = "mount -t tmpfs -o size=1m none \"$1\" && exec \"$0\" run all --out \"$1\"";
    let mut command = Command::new("unshare");
    command.args(["--mount", "sh", "-c", script]);
    command.arg(env!("CARGO_BIN_EXE_dunlin-lab"));
    let output = command.arg(folder.path()).output().unwrap();
    let said = said(&output);
    assert_eq!(output.status.code(), Some(1), "{said}");
    let want = format!(
        "dunlin-lab: no space for captures in {}: 1 MiB are free, 64 MiB are needed",
        folder.path().display()
    );
    assert!(said.starts_with(&want), "{said}");
    assert_eq!(said.lines().count(), 1, "{said}");
}
