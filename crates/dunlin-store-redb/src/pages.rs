//! The pages of a redb file as they lie on disk, read without redb: whether
//! every page is what its parent says it is, and the rows of pages that can be
//! read when some cannot. Knows the format of redb 4 (its `docs/design.md`), and
//! no table of this crate.
//!
//! Every page has a checksum of 128 bits in its parent, up to the header. redb
//! looks at them only when it repairs after a crash, and then gives the whole
//! file up if one is wrong. With them, a page in which a single bit is wrong is
//! not only found but corrected: the bit that makes the checksum right is looked
//! for.

use core::fmt;
use std::collections::HashSet;
use std::io;

use redb::StorageBackend;
use xxhash_rust::xxh3::xxh3_128;

const PAGE_BYTES: u64 = 4096;
const REGION_PAGES: u64 = 1 << 20;
const MAGIC: &[u8; 9] = b"redb\x1a\x0a\xa9\x0d\x0a";
const HEADER_BYTES: usize = 320;
const SLOT_BYTES: usize = 128;
const SLOT_CHECKED_BYTES: usize = 112;
const FILE_VERSION: u8 = 3;
const LEAF: u8 = 1;
const BRANCH: u8 = 2;
const NORMAL_TABLE: u8 = 3;
const PRIMARY: u8 = 1;
const UNCLEAN: u8 = 2;
const TWO_PHASES: u8 = 4;

/// As deep as redb descends.
const DEPTH_MAX: usize = 128;

/// Largest page that single wrong bits are looked for in: a sixth of a second.
const CORRECTED_BYTES_MAX: usize = 16 * 1024;

/// Damage described in words; more is counted.
pub(crate) const DESCRIBED_MAX: usize = 1000;

/// Where a tree begins.
#[derive(Clone, Copy, Debug)]
struct Root {
    page: u64,
    checksum: u128,
}

/// Fixed widths of keys and values, of those that have one.
#[derive(Clone, Copy, Debug, Default)]
struct Widths {
    key: Option<usize>,
    value: Option<usize>,
}

/// A row, and whether its page is what it should be.
pub(crate) struct RawRow<'a> {
    pub(crate) key: &'a [u8],
    pub(crate) value: &'a [u8],
    pub(crate) trusted: bool,
}

/// What is wrong with a file.
#[derive(Clone, Debug, Default)]
pub(crate) struct Damage {
    /// Each in words, at most [`DESCRIBED_MAX`].
    pub(crate) described: Vec<String>,
    /// Pages that are wrong, the header included.
    pub(crate) pages: u64,
    /// Those of them that had one wrong bit, whose content is known.
    pub(crate) corrected: u64,
}

impl Damage {
    fn add(&mut self, place: &str, corrected: bool) {
        self.pages += 1;
        self.corrected += u64::from(corrected);
        if self.described.len() < DESCRIBED_MAX {
            let end = match corrected {
                true => "one bit is wrong; it is corrected",
                false => "the content is not what was written",
            };
            self.described.push(format!("{place}: {end}"));
        }
    }
}

impl fmt::Display for Damage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let first = self.described.first().map_or("nothing", String::as_str);
        match self.pages.saturating_sub(1) {
            0 => f.write_str(first),
            others => write!(f, "{first}; {others} more"),
        }
    }
}

/// A table of the file: name, root, widths, number of rows.
struct TableAt {
    name: Vec<u8>,
    root: Option<Root>,
    widths: Widths,
    rows: u64,
}

#[derive(Clone, Copy, Debug)]
struct Slot {
    transaction: u64,
    user: Option<Root>,
    system: Option<Root>,
}

/// A file that nothing writes to.
pub(crate) struct Pages<'a> {
    file: &'a dyn StorageBackend,
    len: u64,
    slot: Slot,
    /// What is wrong with the header and the pages that were looked at.
    pub(crate) damage: Damage,
    /// The commit in use is not the last.
    older: bool,
    /// The last commit was not whole, as after a power cut during it; the one
    /// before it is used.
    pub(crate) rolled_back: bool,
    seen: HashSet<u64>,
}

impl<'a> Pages<'a> {
    /// Reads the header, and all pages to see which commit to believe. When
    /// it returns, `damage` is that of the whole file.
    pub(crate) fn open(file: &'a dyn StorageBackend) -> io::Result<Self> {
        let len = file.len()?;
        let mut header = [0; HEADER_BYTES];
        if len < HEADER_BYTES as u64 {
            return Err(invalid("the file is too short to be a store"));
        }
        file.read(0, &mut header)?;
        let mut damage = Damage::default();
        let flags = check_header(&header, len, &mut damage);
        let primary = usize::from(flags & PRIMARY != 0);
        // A power cut can leave half a commit, which is then not the one to use.
        let must_be = |at| at == primary && flags & (UNCLEAN | TWO_PHASES) != UNCLEAN;
        let slots = [
            read_slot(&header, 0, must_be(0), &mut damage),
            read_slot(&header, 1, must_be(1), &mut damage),
        ];
        let mut order = [primary, 1 - primary];
        let newer = |a: usize, b: usize| match (slots.get(a), slots.get(b)) {
            (Some(Some(a)), Some(Some(b))) => a.transaction > b.transaction,
            (Some(Some(_)), _) => true,
            _ => false,
        };
        if flags & TWO_PHASES == 0 && newer(order[1], order[0]) {
            order.swap(0, 1);
        }
        let mut best: Option<Pages<'_>> = None;
        for (turn, at) in order.into_iter().enumerate() {
            let Some(slot) = slots.get(at).copied().flatten() else {
                continue;
            };
            let mut pages = Pages {
                file,
                len,
                slot,
                damage: damage.clone(),
                older: turn == 1,
                // redb itself may have rolled back, and been killed since.
                rolled_back: turn == 1
                    && flags & TWO_PHASES == 0
                    && (flags & UNCLEAN != 0 || at == primary),
                seen: HashSet::new(),
            };
            pages.verify()?;
            let lost = |pages: &Pages<'_>| pages.damage.pages - pages.damage.corrected;
            let sound = pages.damage.pages == damage.pages;
            if best.as_ref().is_none_or(|best| lost(&pages) < lost(best)) {
                best = Some(pages);
            }
            if sound {
                break;
            }
        }
        let mut best = best.ok_or_else(|| invalid("both commits in the header are damaged"))?;
        if best.older && !best.rolled_back {
            best.damage.add("header, the last commit", false);
        }
        Ok(best)
    }

    /// Whether the file is as it was written.
    pub(crate) fn is_sound(&self) -> bool {
        self.damage.pages == 0
    }

    /// Looks at every page.
    fn verify(&mut self) -> io::Result<()> {
        for (root, tree) in [(self.slot.system, "system"), (self.slot.user, "user")] {
            for table in self.tables(root, tree)? {
                let name = String::from_utf8_lossy(&table.name).into_owned();
                self.tree(&name, table.root, table.widths, &mut |_| Ok(()))?;
            }
        }
        Ok(())
    }

    /// Hands out the rows of a table, damage or not; how many the file says
    /// that there are.
    pub(crate) fn rows(
        &mut self,
        name: &str,
        row: &mut dyn FnMut(RawRow<'_>) -> io::Result<()>,
    ) -> io::Result<u64> {
        // What is wrong was written down by `open`.
        let damage = self.damage.clone();
        self.seen.clear();
        let mut rows = 0;
        for table in self.tables(self.slot.user, "user")? {
            if table.name == name.as_bytes() {
                rows = table.rows;
                self.tree(name, table.root, table.widths, row)?;
            }
        }
        self.damage = damage;
        Ok(rows)
    }

    fn tables(&mut self, root: Option<Root>, tree: &str) -> io::Result<Vec<TableAt>> {
        let mut tables = Vec::new();
        let name = format!("the list of {tree} tables");
        self.tree(&name, root, Widths::default(), &mut |row| {
            // Of a page that is damaged, a definition proves itself: what it
            // leads to has a checksum of 128 bits.
            tables.extend(read_definition(row.key, row.value));
            Ok(())
        })?;
        Ok(tables)
    }

    fn tree(
        &mut self,
        name: &str,
        root: Option<Root>,
        widths: Widths,
        row: &mut dyn FnMut(RawRow<'_>) -> io::Result<()>,
    ) -> io::Result<()> {
        match root {
            Some(root) => self.page(name, root, widths, 0, row),
            None => Ok(()),
        }
    }

    fn page(
        &mut self,
        name: &str,
        at: Root,
        widths: Widths,
        depth: usize,
        row: &mut dyn FnMut(RawRow<'_>) -> io::Result<()>,
    ) -> io::Result<()> {
        let place = || format!("table {name}, page {}", page_name(at.page));
        if depth >= DEPTH_MAX || !self.seen.insert(at.page) {
            self.damage.add(&place(), false);
            return Ok(());
        }
        let Some(mut page) = self.read(at.page)? else {
            self.damage.add(&place(), false);
            return Ok(());
        };
        let mut trusted = checksum(&page, widths) == Some(at.checksum);
        if !trusted {
            trusted = correct(&mut page, at.checksum, widths);
            self.damage.add(&place(), trusted);
        }
        if page.first() == Some(&BRANCH) {
            for child in Branch(&page).children() {
                // A branch that is damaged leads astray: only to where the page
                // is as the branch says.
                if trusted || self.leads_to(child, widths)? {
                    self.page(name, child, widths, depth + 1, row)?;
                } else {
                    self.damage.add(&format!("{}, below", place()), false);
                }
            }
            return Ok(());
        }
        let leaf = Leaf {
            page: &page,
            widths,
        };
        for at in 0..leaf.len() {
            if let Some((key, value)) = leaf.row(at) {
                row(RawRow {
                    key,
                    value,
                    trusted,
                })?;
            }
        }
        Ok(())
    }

    fn leads_to(&self, at: Root, widths: Widths) -> io::Result<bool> {
        let page = self.read(at.page)?;
        Ok(page.is_some_and(|page| checksum(&page, widths) == Some(at.checksum)))
    }

    /// The page, if the file has it.
    fn read(&self, number: u64) -> io::Result<Option<Vec<u8>>> {
        let order = number >> 59;
        if order > 20 {
            return Ok(None);
        }
        let index = number & (0x000f_ffff >> order);
        let region = (number >> 20) & 0x000f_ffff;
        let bytes = PAGE_BYTES << order;
        let offset = PAGE_BYTES + region * REGION_PAGES * PAGE_BYTES + index * bytes;
        if offset + bytes > self.len {
            return Ok(None);
        }
        let mut page = vec![0; usize::try_from(bytes).map_err(io::Error::other)?];
        self.file.read(offset, &mut page)?;
        Ok(Some(page))
    }
}

fn invalid(text: &'static str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, text)
}

fn page_name(number: u64) -> String {
    let (region, index) = ((number >> 20) & 0x000f_ffff, number & 0x000f_ffff);
    format!("{region}.{index}/{}", number >> 59)
}

/// Checks what has no checksum in the header; its flags.
fn check_header(header: &[u8; HEADER_BYTES], len: u64, damage: &mut Damage) -> u8 {
    let flags = header[MAGIC.len()];
    let word = |at: usize| u64::from(u32_at(header, at).unwrap_or(0));
    let geometry = [word(12), word(16), word(20)] == [PAGE_BYTES, 0, REGION_PAGES];
    let pages = 1 + word(24) * REGION_PAGES + word(28);
    // The length in pages is not written while the file is in use.
    let length = flags & UNCLEAN != 0 || pages * PAGE_BYTES == len;
    let known = flags & !(PRIMARY | UNCLEAN | TWO_PHASES) == 0;
    if !header.starts_with(MAGIC) || !geometry || !length || !known {
        damage.add("header", false);
    }
    flags
}

/// A commit in the header, if it is whole, which it may be required to be.
fn read_slot(
    header: &[u8; HEADER_BYTES],
    at: usize,
    must_be: bool,
    damage: &mut Damage,
) -> Option<Slot> {
    let begin = 64 + at * SLOT_BYTES;
    let mut bytes = header.get(begin..begin + SLOT_BYTES)?.to_vec();
    let right = |bytes: &[u8]| {
        let (checked, checksum) = bytes.split_at_checked(SLOT_CHECKED_BYTES)?;
        let wanted = u128::from_le_bytes(checksum.try_into().ok()?);
        (xxh3_128(checked) == wanted).then_some(())
    };
    if right(&bytes).is_none() {
        let corrected = flip_until(&mut bytes, |bytes| right(bytes).is_some());
        if must_be || corrected {
            damage.add(&format!("header, commit {at}"), corrected);
        }
        if !corrected {
            return None;
        }
    }
    if bytes.first() != Some(&FILE_VERSION) {
        return None;
    }
    let root = |flag: usize, at: usize| {
        let some = bytes.get(flag).is_some_and(|flag| *flag != 0);
        some.then(|| read_root(&bytes, at)).flatten()
    };
    Some(Slot {
        transaction: u64_at(&bytes, 104)?,
        user: root(1, 8),
        system: root(2, 40),
    })
}

fn read_root(bytes: &[u8], at: usize) -> Option<Root> {
    let checksum = bytes.get(at + 8..at + 24)?;
    Some(Root {
        page: u64_at(bytes, at)?,
        checksum: u128::from_le_bytes(checksum.try_into().ok()?),
    })
}

/// A row of a list of tables.
fn read_definition(name: &[u8], bytes: &[u8]) -> Option<TableAt> {
    if bytes.first() != Some(&NORMAL_TABLE) {
        return None;
    }
    let width = |at: usize| match bytes.get(at)? {
        0 => Some(None),
        _ => Some(Some(u32_at(bytes, at + 1)? as usize)),
    };
    Some(TableAt {
        name: name.to_vec(),
        rows: u64_at(bytes, 1)?,
        root: match bytes.get(9)? {
            0 => None,
            _ => Some(read_root(bytes, 10)?),
        },
        widths: Widths {
            key: width(42)?,
            value: width(47)?,
        },
    })
}

fn u32_at(bytes: &[u8], at: usize) -> Option<u32> {
    let bytes = bytes.get(at..)?.first_chunk()?;
    Some(u32::from_le_bytes(*bytes))
}

fn u64_at(bytes: &[u8], at: usize) -> Option<u64> {
    let bytes = bytes.get(at..)?.first_chunk()?;
    Some(u64::from_le_bytes(*bytes))
}

fn count(page: &[u8]) -> usize {
    let count = page.get(2..).and_then(<[u8]>::first_chunk);
    count.map_or(0, |count| usize::from(u16::from_le_bytes(*count)))
}

/// Checksum of the part of a page that is in use.
fn checksum(page: &[u8], widths: Widths) -> Option<u128> {
    let end = match *page.first()? {
        LEAF => {
            let leaf = Leaf { page, widths };
            leaf.value_end(leaf.len().checked_sub(1)?)?
        }
        BRANCH => Branch(page).end(widths)?,
        _ => return None,
    };
    page.get(..end).map(xxh3_128)
}

/// Finds the one bit that is wrong, if it is one.
fn correct(page: &mut [u8], wanted: u128, widths: Widths) -> bool {
    page.len() <= CORRECTED_BYTES_MAX
        && flip_until(page, |page| checksum(page, widths) == Some(wanted))
}

/// Flips one bit such that `is_right`; without one, nothing is changed.
fn flip_until(bytes: &mut [u8], is_right: impl Fn(&[u8]) -> bool) -> bool {
    for at in 0..bytes.len() {
        for bit in 0..8 {
            let flip = |bytes: &mut [u8]| {
                if let Some(byte) = bytes.get_mut(at) {
                    *byte ^= 1 << bit;
                }
            };
            flip(bytes);
            if is_right(bytes) {
                return true;
            }
            flip(bytes);
        }
    }
    false
}

struct Branch<'a>(&'a [u8]);

impl Branch<'_> {
    fn children(&self) -> impl Iterator<Item = Root> {
        let count = count(self.0) + 1;
        (0..count).filter_map(move |at| {
            let checksum = self.0.get(8 + 16 * at..)?.first_chunk()?;
            Some(Root {
                page: u64_at(self.0, 8 + 16 * count + 8 * at)?,
                checksum: u128::from_le_bytes(*checksum),
            })
        })
    }

    fn end(&self, widths: Widths) -> Option<usize> {
        let keys = count(self.0);
        let last = keys.checked_sub(1)?;
        let ends = 8 + 24 * (keys + 1);
        match widths.key {
            Some(width) => Some(ends + width * keys),
            None => Some(u32_at(self.0, ends + 4 * last)? as usize),
        }
    }
}

struct Leaf<'a> {
    page: &'a [u8],
    widths: Widths,
}

impl<'a> Leaf<'a> {
    fn len(&self) -> usize {
        count(self.page)
    }

    fn keys_begin(&self) -> usize {
        let tables =
            usize::from(self.widths.key.is_none()) + usize::from(self.widths.value.is_none());
        4 + 4 * self.len() * tables
    }

    fn key_end(&self, at: usize) -> Option<usize> {
        match self.widths.key {
            Some(width) => Some(self.keys_begin() + width * (at + 1)),
            None => Some(u32_at(self.page, 4 + 4 * at)? as usize),
        }
    }

    fn value_end(&self, at: usize) -> Option<usize> {
        if let Some(width) = self.widths.value {
            let keys_end = self.key_end(self.len().checked_sub(1)?)?;
            return Some(keys_end + width * (at + 1));
        }
        let ends = match self.widths.key {
            Some(_) => 4,
            None => 4 + 4 * self.len(),
        };
        Some(u32_at(self.page, ends + 4 * at)? as usize)
    }

    fn row(&self, at: usize) -> Option<(&'a [u8], &'a [u8])> {
        let (key_begin, value_begin) = match at.checked_sub(1) {
            Some(before) => (self.key_end(before)?, self.value_end(before)?),
            None => (self.keys_begin(), self.key_end(self.len().checked_sub(1)?)?),
        };
        let key = self.page.get(key_begin..self.key_end(at)?)?;
        Some((key, self.page.get(value_begin..self.value_end(at)?)?))
    }
}
