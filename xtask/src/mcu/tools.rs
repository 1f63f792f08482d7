//! The programs that images are built and run with: a compiler for the
//! Cortex-M4, QEMU and the plugin that counts. Knows no image.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context as _, Result, bail};

use crate::tree::Tree;

/// The processor.
const TARGET: &str = "thumbv7em-none-eabihf";
/// The board.
const BOARD: &str = "mps2-an386";
/// What must be installed, and the Debian package that has it.
const PROGRAMS: [(&str, &str); 4] = [
    ("qemu-system-arm", "qemu-system-arm"),
    (
        "arm-none-eabi-gcc",
        "gcc-arm-none-eabi libnewlib-arm-none-eabi",
    ),
    ("readelf", "binutils"),
    ("cc", "gcc"),
];

/// The programs, after a look whether they are there.
pub(crate) struct Tools {
    root: PathBuf,
    target: PathBuf,
    /// What chooses the compiler; empty if rustup's has the target.
    compiler: Vec<(String, String)>,
}

/// Counts between two marks of a run.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Counts {
    pub(crate) instructions: u64,
    pub(crate) cycles: u64,
    pub(crate) divisions: u64,
    /// The lowest address of the stack that was written to.
    pub(crate) lowest: u64,
    /// What the path through the code and memory hashes to.
    pub(crate) fingerprint: String,
}

/// What a run of an image gave.
pub(crate) struct Run {
    /// Whether it ended with status 0.
    pub(crate) passed: bool,
    pub(crate) text: String,
    /// The marks in order; none without the plugin.
    pub(crate) marks: Vec<(u32, Counts)>,
}

impl Tools {
    /// The tools, or what is missing.
    ///
    /// # Errors
    /// What is there does not work.
    pub(crate) fn find() -> Result<Result<Self, String>> {
        let missing: Vec<_> = PROGRAMS
            .iter()
            .filter(|(program, _)| !exists(program))
            .map(|(_, package)| *package)
            .collect();
        if !missing.is_empty() {
            return Ok(Err(format!("needs {}", missing.join(", "))));
        }
        let root = Tree::root();
        let target =
            std::env::var_os("CARGO_TARGET_DIR").map_or_else(|| root.join("target"), Into::into);
        let mut tools = Self {
            root,
            target,
            compiler: Vec::new(),
        };
        fs::create_dir_all(tools.folder()).context("cannot make target/mcu")?;
        if !installed_by_rustup() {
            let prefix = tools.target.join("thumb");
            let script = tools.root.join("scripts/mcu/toolchain.sh");
            let made = Command::new(script).arg(&prefix).status();
            if !made.is_ok_and(|status| status.success()) {
                return Ok(Err("needs the target of rustup, or apt".to_owned()));
            }
            let env = prefix.join("env");
            let env = fs::read_to_string(&env).with_context(|| format!("{}", env.display()))?;
            tools.compiler = variables(&env);
        }
        tools.build_plugin()?;
        Ok(Ok(tools))
    }

    /// The root of the repository.
    pub(crate) fn root(&self) -> &Path {
        &self.root
    }

    /// Where files of a run go.
    pub(crate) fn folder(&self) -> PathBuf {
        self.target.join("mcu")
    }

    /// The plugin.
    pub(crate) fn plugin(&self) -> PathBuf {
        self.folder().join("plugin.so")
    }

    fn build_plugin(&self) -> Result<()> {
        let source = self.root.join("scripts/mcu/plugin.c");
        let status = Command::new("cc")
            .args(["-O2", "-Wall", "-Wextra", "-shared", "-fPIC", "-o"])
            .args([&self.plugin(), &source])
            .status()
            .context("cannot start cc")?;
        match status.success() {
            true => Ok(()),
            false => bail!("{} does not compile", source.display()),
        }
    }

    /// Builds a package outside the workspace, whose binary has this name, and
    /// returns a copy of the image.
    ///
    /// # Errors
    /// It does not compile.
    pub(crate) fn build(&self, package: &str, binary: &str, features: &str) -> Result<PathBuf> {
        // That of scripts/mcu/build.sh, which builds some of the same images.
        let target = self.target.join("firmware");
        let status = Command::new("cargo")
            .args(["build", "--quiet", "--release", "--locked"])
            .arg("--no-default-features")
            .args(["--features", features])
            .current_dir(self.root.join(package))
            .env("CARGO_TARGET_DIR", &target)
            .envs(self.compiler.iter().cloned())
            .status()
            .context("cannot start cargo")?;
        if !status.success() {
            bail!("{package} does not compile with {features}");
        }
        let name = format!("{binary}-{}", features.replace(',', "-"));
        let copy = self.folder().join(name);
        let image = target.join(TARGET).join("release").join(binary);
        fs::copy(&image, &copy).with_context(|| format!("cannot copy {}", image.display()))?;
        Ok(copy)
    }

    /// Runs an image that ends by itself, with arguments, and under the plugin
    /// if there are options for it.
    ///
    /// # Errors
    /// QEMU cannot be started.
    pub(crate) fn run(
        &self,
        image: &Path,
        arguments: &[&str],
        plugin: Option<&str>,
    ) -> Result<Run> {
        let marks = self.folder().join("marks");
        let mut semihosting = "enable=on,target=native,arg=image".to_owned();
        for argument in arguments {
            semihosting.push_str(",arg=");
            semihosting.push_str(argument);
        }
        let mut command = Command::new("qemu-system-arm");
        command
            .args(["-M", BOARD, "-display", "none", "-monitor", "none"])
            .args(["-serial", "none", "-semihosting-config", &semihosting])
            .arg("-kernel")
            .arg(image)
            .stdin(Stdio::null())
            .stderr(Stdio::inherit());
        if let Some(options) = plugin {
            let (plugin, marks) = (self.plugin(), marks.display());
            let options = format!("{},out={marks}{options}", plugin.display());
            command.args(["-plugin", &options]);
        }
        let output = command.output().context("cannot start qemu-system-arm")?;
        let marks = match plugin {
            Some(_) => fs::read_to_string(&marks).context("the plugin wrote nothing")?,
            None => String::new(),
        };
        Ok(Run {
            passed: output.status.success(),
            text: String::from_utf8_lossy(&output.stdout).into_owned(),
            marks: marks.lines().filter_map(parse).collect(),
        })
    }
}

fn exists(program: &str) -> bool {
    Command::new(program)
        .arg("--version")
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .status()
        .is_ok()
}

fn installed_by_rustup() -> bool {
    let list = Command::new("rustup")
        .args(["target", "list", "--installed"])
        .stderr(Stdio::null())
        .output();
    list.is_ok_and(|list| {
        String::from_utf8_lossy(&list.stdout)
            .lines()
            .any(|l| l == TARGET)
    })
}

/// The variables of `export NAME=VALUE NAME=VALUE` lines.
fn variables(text: &str) -> Vec<(String, String)> {
    text.lines()
        .filter_map(|line| line.strip_prefix("export "))
        .flat_map(str::split_whitespace)
        .filter_map(|word| word.split_once('='))
        .map(|(name, value)| (name.to_owned(), value.to_owned()))
        .collect()
}

/// A line of the plugin, whose counts are from the start of the run.
fn parse(line: &str) -> Option<(u32, Counts)> {
    let mut words = line.split_whitespace();
    let mark = words.next()?.parse().ok()?;
    Some((
        mark,
        Counts {
            instructions: words.next()?.parse().ok()?,
            cycles: words.next()?.parse().ok()?,
            lowest: u64::from_str_radix(words.next()?, 16).ok()?,
            fingerprint: words.next()?.to_owned(),
            divisions: words.next()?.parse().ok()?,
        },
    ))
}

/// What was counted between each mark 1 and the mark after it.
pub(crate) fn regions(marks: &[(u32, Counts)]) -> Vec<Counts> {
    marks
        .windows(2)
        .filter_map(|pair| match pair {
            [(1, from), (_, to)] => Some(Counts {
                instructions: to.instructions.saturating_sub(from.instructions),
                cycles: to.cycles.saturating_sub(from.cycles),
                divisions: to.divisions.saturating_sub(from.divisions),
                lowest: to.lowest,
                fingerprint: to.fingerprint.clone(),
            }),
            _ => None,
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn regions_are_between_marks() {
        let text = "1 10 12 20000000 01 0\n2 15 20 1ffff000 ab 1\n1 17 22 2 0 1\n2 18 24 3 cd 1\n0 19 25 0 0 1\n";
        let marks: Vec<_> = text.lines().filter_map(parse).collect();
        let regions = regions(&marks);
        assert_eq!(regions.len(), 2);
        assert_eq!((regions[0].instructions, regions[0].cycles), (5, 8));
        assert_eq!((regions[0].divisions, regions[0].lowest), (1, 0x1fff_f000));
        assert_eq!(regions[1].fingerprint, "cd");
    }

    #[test]
    fn an_environment_is_read() {
        let found = variables("export A=1 B=/x\nC=2\nexport D=3\n");
        let found: Vec<_> = found.iter().map(|(n, v)| format!("{n}{v}")).collect();
        assert_eq!(found, ["A1", "B/x", "D3"]);
    }
}
