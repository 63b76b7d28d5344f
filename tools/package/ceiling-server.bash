# Completion for ceiling-server in bash; installed where bash-completion looks for it (completions/ceiling-server).
# The options come from the program itself, so they are always those of the version that is installed.

_ceiling_server() {
    local cur prev
    _get_comp_words_by_ref -n : cur prev  # an address is one word, though bash breaks words at colons
    COMPREPLY=()
    case $prev in
    --file)
        mapfile -t COMPREPLY < <(compgen -f -- "$cur")
        return
        ;;
    --root)
        mapfile -t COMPREPLY < <(compgen -d -- "$cur")
        return
        ;;
    --listen | --metrics)
        mapfile -t COMPREPLY < <(compgen -W '127.0.0.1:8080 0.0.0.0:8080 [::]:8080 unix:' -- "$cur")
        __ltrim_colon_completions "$cur"
        return
        ;;
    --status)
        mapfile -t COMPREPLY < <(compgen -W '200 204 301 302 304 400 403 404 429 500 502 503 504' -- "$cur")
        return
        ;;
    --threads)
        mapfile -t COMPREPLY < <(compgen -W "$(seq "$(nproc)")" -- "$cur")
        return
        ;;
    --type)
        mapfile -t COMPREPLY < <(compgen -W 'text/plain text/html application/json application/octet-stream' -- "$cur")
        return
        ;;
    esac
    if [[ $cur == -* || -z $cur ]]; then
        # A line of --help begins with two blanks, the option and, where it takes one, its value in capitals or quotes.
        mapfile -t COMPREPLY < <(compgen -W "$("$1" --help 2>/dev/null | sed -n 's/^  \(--[a-z-]*\).*/\1/p')" -- "$cur")
    fi
}
complete -o filenames -F _ceiling_server ceiling-server
