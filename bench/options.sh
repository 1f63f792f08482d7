# To be sourced by the scripts beside it: --help, and a refusal of other options
# than those that a script knows.

# options "KNOWN ..." "$@"
options() {
    known=" $1 "
    shift
    for word in "$@"; do
        case $word in
        -h | --help)
            sed -n '2,/^set -eu/{/^set -eu/d;s/^# \{0,1\}//;p;}' "$0"
            exit 0
            ;;
        -*)
            case $known in
            *" $word "*) ;;
            *)
                echo "${0##*/}: there is no option $word; see ${0##*/} --help" >&2
                exit 2
                ;;
            esac
            ;;
        esac
    done
}
