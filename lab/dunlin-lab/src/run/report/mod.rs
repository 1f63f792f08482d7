//! `dunlin-lab report`: what stored runs show, as pages, tables and files.
//! Reads what runs recorded and what experiments say of figures and claims;
//! starts nothing and measures nothing.

mod book;
mod claim;
mod figure;
mod html;
mod index;
mod page;
mod plot;
mod samples;
mod site;

#[cfg(test)]
mod tests;

use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context as _, Result, bail};
use clap::Args;

pub(crate) use claim::line;

use super::ALL;
use crate::console;
use site::Site;

/// Folder of the site in that of the runs.
const SITE: &str = "report";

/// Show stored runs: a page for each, an index, JSON and CSV.
#[derive(Args, Debug)]
pub(crate) struct ReportCommand {
    /// Folder of runs.
    #[arg(long, value_name = "DIR", default_value = "target/lab/runs")]
    runs: PathBuf,
    /// Folder to write to; `report` in that of the runs if not given.
    #[arg(long, value_name = "DIR")]
    out: Option<PathBuf>,
    /// Write the page of the book and its pictures into this folder too, such
    /// as `docs/book/src`.
    #[arg(long, value_name = "DIR")]
    book: Option<PathBuf>,
}

impl ReportCommand {
    pub(crate) fn run(self) -> Result<ExitCode> {
        let out = self.out.unwrap_or_else(|| self.runs.join(SITE));
        let site = Site::read(&self.runs, ALL)?;
        write_site(&site, &out)?;
        if let Some(folder) = &self.book {
            write_book(&site, folder)?;
        }
        finish(&site, &out)
    }
}

/// Writes the site of all runs in this folder, after one of them.
pub(crate) fn after_run(runs: &Path) -> Result<()> {
    let (site, out) = (Site::read(runs, ALL)?, runs.join(SITE));
    write_site(&site, &out)?;
    // The run itself went well; other runs may not be readable.
    if let Err(error) = finish(&site, &out) {
        console::error(format_args!("{error:#}"));
    }
    Ok(())
}

/// Says where the report is, and fails if something is not in it.
fn finish(site: &Site, out: &Path) -> Result<ExitCode> {
    let index = out.join("index.html");
    console::line(format_args!("report: {}", index.display()));
    for shown in site.shown.iter().filter(|shown| !shown.complete()) {
        let name = &shown.stem;
        console::line(format_args!("  {name} is unfinished, and its page says so"));
    }
    if site.unreadable.is_empty() {
        return Ok(ExitCode::SUCCESS);
    }
    bail!("not in the report: {}", site.unreadable.join("; "))
}

fn write_site(site: &Site, out: &Path) -> Result<()> {
    make(out)?;
    for shown in &site.shown {
        let to = |ending: &str| out.join(format!("{}.{ending}", shown.stem));
        let page = page::page(shown);
        write(&to("html"), |file| file.write_all(page.as_bytes()))?;
        write(&to("json"), |file| samples::json(shown, file))?;
        if samples::has_csv(shown) {
            write(&to("csv"), |file| samples::csv(shown, file))?;
        }
    }
    let index = index::page(site);
    write(&out.join("index.html"), |file| {
        file.write_all(index.as_bytes())
    })
}

fn write_book(site: &Site, folder: &Path) -> Result<()> {
    if !folder.is_dir() {
        bail!(
            "there is no folder {} for the book's page",
            folder.display()
        );
    }
    let (page, pictures) = book::book(site);
    let beside = folder.join(book::PICTURES);
    // Pictures of figures that are no more would stay in the book's source.
    if beside.is_dir() {
        remove_pictures(&beside)?;
    }
    if !pictures.is_empty() {
        make(&beside)?;
    }
    for (name, picture) in pictures {
        write(&beside.join(name), |file| {
            file.write_all(picture.as_bytes())
        })?;
    }
    write(&folder.join(book::PAGE), |file| {
        file.write_all(page.as_bytes())
    })
}

fn remove_pictures(folder: &Path) -> Result<()> {
    let cannot = || format!("cannot tidy {}", folder.display());
    for entry in std::fs::read_dir(folder).with_context(cannot)? {
        let path = entry.with_context(cannot)?.path();
        if path.extension().is_some_and(|ending| ending == "svg") {
            std::fs::remove_file(&path).with_context(cannot)?;
        }
    }
    Ok(())
}

fn make(folder: &Path) -> Result<()> {
    std::fs::create_dir_all(folder).with_context(|| format!("cannot make {}", folder.display()))
}

/// Writes a file whole or not at all: a full disk leaves what was there.
fn write(path: &Path, fill: impl FnOnce(&mut dyn Write) -> io::Result<()>) -> Result<()> {
    let next = path.with_extension("next");
    let filled = || -> io::Result<()> {
        let mut file = BufWriter::new(File::create(&next)?);
        fill(&mut file)?;
        file.flush()?;
        std::fs::rename(&next, path)
    };
    let result = filled();
    if result.is_err() {
        // It may not have been made.
        let _ = std::fs::remove_file(&next);
    }
    result.with_context(|| format!("cannot write {}", path.display()))
}
