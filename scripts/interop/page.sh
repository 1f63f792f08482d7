#!/usr/bin/env bash
# The broker's page in Chromium: each view, roles, names that are markup, a wrong token, a
# restart of the broker, 10,000 clients. Pictures of all views, light, dark and as wide as
# a phone, go to target/page. Prints, last, `N passed, N failed, N skipped`.
#
#   scripts/interop/page.sh [--short] [--pictures FOLDER] [--book]
#
# With --book it then makes the pictures of the book, which takes six minutes more.
# DUNLIN names the binary, as for run.sh; CHROMIUM the browser; PAGE_FOLDER a folder from
# which the page's files come instead of the binary. What is not installed is skipped in
# words.
set -euo pipefail
cd "$(dirname "$0")/../.."
. scripts/skip.sh
need page python3 openssl
more=()
book=
for word in "$@"; do
    if [ "$word" = --book ]; then book=1; else more+=("$word"); fi
done
python3 -B scripts/interop/run_page.py "${more[@]}"
[ -z "$book" ] || python3 -B scripts/interop/page_book.py
