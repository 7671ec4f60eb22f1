# In ~/.bashrc: eval "$(samestep --completion bash)"
_samestep() {
    local line=${COMP_LINE:0:COMP_POINT} given offered= lead= files=
    read -ra given <<< "$line"
    local whole=${line##*[[:space:]]} word command=${given[1]} row=${given[2]}
    local -i at=${#given[@]}
    [[ -n $whole ]] && at+=-1
    local flag=${given[at-1]}
    word=$whole
    if [[ $word == --*=* ]]; then flag=${word%%=*} lead=${word%%=*}= word=${word#*=}; fi
    if (( at == 1 )); then offered="@COMMANDS@"; else
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
    if [[ -z $files && $word == *,* ]]; then lead+=${word%,*}, word=${word##*,}; fi
    COMPREPLY=($(compgen -P "$lead" -W "$offered" -- "$word"))
    if [[ -n $files && ${#COMPREPLY[@]} -eq 0 && $word != -* ]]; then
        compopt -o filenames 2> /dev/null
        COMPREPLY=($(compgen -f -- "$word"))
        return
    fi
    # What readline keeps of the word: it breaks words at these characters.
    local breaks=${COMP_WORDBREAKS//[^:=]/}
    [[ -z $breaks ]] || COMPREPLY=("${COMPREPLY[@]#"${whole%"${whole##*[$breaks]}"}"}")
}
complete -F _samestep samestep
