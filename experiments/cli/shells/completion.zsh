#compdef samestep
# In ~/.zshrc, after compinit: eval "$(samestep --completion zsh)"
_samestep() {
    local command=$words[2] row=$words[3] flag=$words[CURRENT-1] offered= files=
    if compset -P '--*='; then flag=${IPREFIX%=}; fi
    if (( CURRENT == 2 )); then offered="@COMMANDS@"; else
        case "$command $flag" in
@VALUES@
        *) files=yes
        case $command in
@FLAGS@
        esac
        case $row in
@OPTIONS@
        esac
        esac
    fi
    [[ -n $files ]] || compset -P '*,'
    compadd -- ${=offered} || { [[ -n $files ]] && _files }
}
if [[ $funcstack[1] == _samestep ]]; then _samestep "$@"; else
    (( $+functions[compdef] )) || { autoload -Uz compinit && compinit }
    compdef _samestep samestep
fi
