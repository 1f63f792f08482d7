# For scripts that run tests: what is not installed is skipped in words, and the last line
# counts. Sourced.

# skip TESTS WHY: ends the script.
skip() {
    printf '%s: skipped: %s\n0 passed, 0 failed, 1 skipped\n' "$1" "$2"
    exit 0
}

# need TESTS PROGRAM...: skips without one of the programs.
need() {
    local tests=$1 program
    shift
    for program in "$@"; do
        command -v "$program" >/dev/null || skip "$tests" "no $program"
    done
}
