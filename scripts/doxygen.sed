:all
N
$!b all
# The inline namespace is left out.
s/inline namespace TESSERA_ISA \{//g
s/^\}(\}+  \/\/ namespace tessera)::TESSERA_ISA/\1/Mg
# The functions that expr/map.hpp makes by a macro are declared.
s/^TESSERA_FUNCTION\((\w+), (\w+)\)/\/\/\/ ops::\2 of each number.\ntemplate <expression Operand> auto \1(Operand\&\& x);/Mg
# A comment behind a member is its purpose.
s/([;,]) +\/\/ /\1  \/\/\/< /g
# Rows of a comment whose words stand in columns are a list, which ends where the indentation does.
s/^( *)(\/\/\/ {2,}[^\n]*\n *\/\/\/)( [^ \n])/\1\2\n\1\/\/\/\3/Mg
s/^( *\/\/\/) {2,}(\S([^ \n]| [^ \n])*) {2,}/\1 - `\2` \&emsp;/Mg
:columns
s/^( *\/\/\/ - `[^\n]*\S) {2,}(\S)/\1 \&emsp;\2/Mg
t columns
