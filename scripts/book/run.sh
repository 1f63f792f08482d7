#!/usr/bin/env bash
# Runs the commands of the book's pages as they stand there, each page in a fresh folder
# and in a network of its own: those by task, and all others that mark a command.
#
#   DUNLIN=target/debug/dunlin scripts/book/run.sh [PAGE...]
#
# Needs a network and a mount namespace, as root or where users may make them; skips
# itself, in one line, where there is none. Prints, last, `N passed, N failed, N skipped`.
set -euo pipefail
cd "$(dirname "$0")/../.."
. scripts/skip.sh
need book unshare ip python3
spaces=(--net --mount)
[ "$(id -u)" -eq 0 ] || spaces+=(--user --map-root-user)
unshare "${spaces[@]}" true 2>/dev/null || skip book 'namespaces are not allowed here'
dunlin=$(realpath "${DUNLIN:-target/debug/dunlin}")
exec python3 -B scripts/book/run.py "$dunlin" "${spaces[*]}" "$@"
