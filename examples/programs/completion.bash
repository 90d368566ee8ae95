# Completes options of the programs, their values, and verbs of ./dev, from what --help says: `source` this file
# in bash, or in zsh after `autoload -U compinit bashcompinit && compinit && bashcompinit`.

# the program, the word to be completed, the word before it
_tessera() {
  local program=${1/#\~/$HOME} verb=${COMP_WORDS[1]} before=$3 current=$2 help words command= option=
  [[ $current != = ]] || current= # bash takes the = of --block=16 for a word
  [[ $before != = ]] || before=${COMP_WORDS[COMP_CWORD - 2]}
  [[ $current != --*=* ]] || { before=${current%%=*} option=$before= current=${current#*=}; } # zsh does not
  if [[ ${program##*/} = dev && $COMP_CWORD = 1 ]]; then
    words=$("$program" help | sed -n 's/^\.\/dev \([a-z_]*\).*/\1/p')
  else
    if [[ ${program##*/} = dev ]]; then
      program=$(echo "${program%dev}"build/release/examples/programs/*/"$verb")
      [[ -x $program ]] || return # not built yet
    elif [[ $COMP_CWORD != 1 && $verb != -* ]]; then
      command=$verb
    fi
    help=$("$program" $command --help 2>/dev/null)
    if [[ $before = --* ]] && grep -q "^  $before [^ ]" <<<"$help"; then # else names of files
      words=$(sed -n "s/^  $before \([^ ]*|[^ ]*\).*/\1/p" <<<"$help")
    else
      words=$(sed -n 's/^  \(--[a-z-]*\).*/\1/p; s/^  \([a-z][a-z]*\) .*/\1/p' <<<"$help")
    fi
  fi
  COMPREPLY=($(compgen -P "$option" -W "${words//|/ }" -- "$current"))
}

complete -o default -F _tessera ./dev {,tessera-}{pretrain,generate,fill_mask,freeze,interpolate,finetune,classify,ipu,mnist,advise}
