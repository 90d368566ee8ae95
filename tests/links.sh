#!/bin/bash
# Every relative link of a page leads to a file. usage: links.sh SOURCE_DIR
set -eu
cd "$1"
dead=0
while IFS=: read -r page link; do
  [ -e "$(dirname "$page")/${link%%#*}" ] || { echo "$page: $link leads nowhere"; dead=1; }
done < <(grep -oHP '\[[^]]*\w[^]]*\]\(\K(?!#|https?:)[^) ]+' ./*.md docs/*.md docs/*/*.md)
exit $dead
