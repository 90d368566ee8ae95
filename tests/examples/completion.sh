# What bash offers for the words of a command: the folder of the build's programs, the project's.
set -eu
build=$1 project=$2
. "$project/examples/programs/completion.bash"

# what is offered, in one line; the words of the command, of which the last is to be completed
offered() {
  COMP_WORDS=("$@") COMP_CWORD=$(($# - 1)) COMPREPLY=()
  _tessera "$1" "${COMP_WORDS[COMP_CWORD]}" "${COMP_WORDS[COMP_CWORD - 1]}"
  echo "${COMPREPLY[*]:-}"
}
check() { # what is meant, the words
  local meant=$1 found
  shift
  found=$(offered "$@")
  [ "$found" = "$meant" ] || { echo "for '$*' '$found' was offered, not '$meant'" && exit 1; }
}

mnist=$build/mnist/mnist ipu=$build/ipu/ipu
check "--pixels --policy" $mnist --p
check "--policy" $mnist --block 4 --po
check "1 4 8 16" $mnist --block ""
check "16" $mnist --block 16
check "1 4 8 16" $mnist --block =
check "snfs" $mnist --policy = sn
check "--policy=snfs" $mnist --policy=sn
check "" $mnist --json ""  # names of files
check "" $mnist --rate ""
check "--last" $mnist --reinitialise --la
check "sweep" $ipu sw
check "--sizes" $ipu sweep --si
check "" $ipu plan --si
check "dense" $ipu plan --mode de
check "--points" $build/pretrain/interpolate runs/a runs/b --po
check "pretrain" "$project/dev" pre
check "interpolate" "$project/dev" int
