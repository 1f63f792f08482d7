//! The frame of every page: one file, nothing loaded, no script.

use super::claim::{self, Row, Verdict};

/// Of everything that is not a picture.
const STYLE: &str = "\
:root{color-scheme:light dark;--ink:#24292f;--quiet:#57606a;--ground:#f6f8fa;--card:#fff;\
--line:#d0d7de;--good:#116329;--goodbg:#dafbe1;--bad:#a40e26;--badbg:#ffebe9;\
--open:#7d4e00;--openbg:#fff8c5;--link:#0550ae}\n\
@media(prefers-color-scheme:dark){:root{--ink:#e6edf3;--quiet:#9da7b1;--ground:#0d1117;\
--card:#161b22;--line:#30363d;--good:#7ee787;--goodbg:#12361f;--bad:#ffa198;--badbg:#4b1113;\
--open:#f2cc60;--openbg:#3b2e09;--link:#79c0ff}}\n\
*{box-sizing:border-box}\
body{margin:0;background:var(--ground);color:var(--ink);font:16px/1.5 system-ui,-apple-system,\
\"Segoe UI\",Roboto,Helvetica,Arial,sans-serif}\
main{max-width:1080px;margin:0 auto;padding:24px 20px 60px}\
h1{font-size:1.7rem;margin:.2em 0}h2{font-size:1.25rem;margin:2em 0 .6em}\
h3{font-size:1.05rem;margin:1.6em 0 .4em}a{color:var(--link)}\
p{margin:.5em 0}.quiet{color:var(--quiet)}nav{font-size:.9rem}\
.card{background:var(--card);border:1px solid var(--line);border-radius:8px;margin:16px 0;\
padding:14px 16px}figure.card{overflow-x:auto}figure svg{display:block;width:100%;min-width:640px;\
height:auto}figcaption{font-weight:600;margin-bottom:8px}\
.scroll{overflow-x:auto}.scroll table{min-width:700px}table{border-collapse:collapse;width:100%;font-size:.9rem;\
background:var(--card)}th,td{border:1px solid var(--line);padding:6px 9px;text-align:left;\
vertical-align:top}th{font-weight:600}td.n{font-variant-numeric:tabular-nums;white-space:nowrap}\
.v{font-weight:600;white-space:nowrap}.holds,.explained{color:var(--good);background:var(--goodbg)}\
.fails{color:var(--bad);background:var(--badbg)}\
.open,.unmeasured{color:var(--open);background:var(--openbg)}\
.warn{border-color:var(--open);background:var(--openbg);color:var(--open)}\
details{margin:.6em 0}summary{cursor:pointer;color:var(--link)}\
code{font:.88em ui-monospace,SFMono-Regular,Menlo,Consolas,monospace;overflow-wrap:anywhere}\
@media print{body{background:#fff}.card{break-inside:avoid}}\n";

/// A page with this title and these elements in its body.
pub(super) fn page(title: &str, body: &str) -> String {
    let title = escape(title);
    format!(
        "<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n\
         <meta name=\"viewport\" content=\"width=device-width,initial-scale=1\">\n\
         <title>{title}</title>\n<style>\n{STYLE}</style>\n</head>\n<body>\n<main>\n\
         {body}</main>\n</body>\n</html>\n"
    )
}

/// A table; cells are HTML already.
pub(super) fn table(head: &[&str], rows: impl IntoIterator<Item = Vec<String>>) -> String {
    let mut html = String::from("<div class=\"scroll\"><table>\n<thead><tr>");
    for name in head {
        html.push_str(&format!("<th scope=\"col\">{}</th>", escape(name)));
    }
    html.push_str("</tr></thead>\n<tbody>\n");
    for row in rows {
        html.push_str("<tr>");
        for cell in row {
            html.push_str(&cell);
        }
        html.push_str("</tr>\n");
    }
    html.push_str("</tbody></table></div>\n");
    html
}

/// A cell of a table.
pub(super) fn cell(text: &str) -> String {
    format!("<td>{}</td>", escape(text))
}

/// A cell with numbers.
pub(super) fn numbers(text: &str) -> String {
    format!("<td class=\"n\">{}</td>", escape(text))
}

/// The table "paper said, we measured, holds?".
pub(super) fn claims(rows: &[Row]) -> String {
    let mut head = vec!["Claim", "Paper said", "We measured", "Target", "Holds?"];
    let reasons = rows.iter().any(|row| !claim::why(row).is_empty());
    if reasons {
        head.push("Why not");
    }
    let rows = rows.iter().map(|row| {
        let claim = &row.claim;
        let (key, word) = (Verdict::of(row).key(), claim::holds(row));
        let mut cells = vec![
            cell(&claim.what),
            cell(&claim::paper(claim)),
            numbers(&claim::measured(claim)),
            numbers(&claim::target(claim)),
            format!("<td class=\"v {key}\">{word}</td>"),
        ];
        if reasons {
            cells.push(cell(&claim::why(row).join("; ")));
        }
        cells
    });
    table(&head, rows)
}

/// What the words of that table mean.
pub(super) const LEGEND: &str = "In brackets: the confidence interval of 95 %, by bootstrap over \
cells and values. A claim holds if all of its interval meets the target, does not if none of it \
does, and is open otherwise. One that does not hold or is open is explained if another claim, which \
isolates its cause, holds.";

/// Text as it may stand in elements and attributes of HTML and SVG.
/// Characters that XML cannot have are left out.
pub(super) fn escape(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '&' => escaped.push_str("&amp;"),
            '<' => escaped.push_str("&lt;"),
            '>' => escaped.push_str("&gt;"),
            '"' => escaped.push_str("&quot;"),
            '\'' => escaped.push_str("&#39;"),
            '\n' | '\t' => escaped.push(' '),
            c if c.is_control() || matches!(c, '\u{fffe}' | '\u{ffff}') => {}
            c => escaped.push(c),
        }
    }
    escaped
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_cannot_leave_its_place() {
        assert_eq!(
            escape("</title><script>alert(\"x\" & 'y')\u{0}"),
            "&lt;/title&gt;&lt;script&gt;alert(&quot;x&quot; &amp; &#39;y&#39;)"
        );
    }
}
