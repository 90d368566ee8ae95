#!/usr/bin/env python3
"""Finds functions that are too long: python3 tests/function_lengths.py DIR|FILE...

Prints `file:line name lines` for each function of more than 60 lines, counted from its name to its last brace,
the longest first, and exits 1 if there are any. --all prints every function and exits 0. A lambda, or a class
inside a function, counts as lines of that function.
"""

import pathlib
import re
import sys

MOST = 60

TOKEN = re.compile(
    r'''(?P<skipped>//[^\n]*|/\*.*?\*/|\#(?:\\\n|//[^\n]*|/\*.*?\*/|[^\n])*)
      | (?P<text>(?:u8|[uUL])?R"(?P<fence>[^(\s]*)\(.*?\)(?P=fence)"|"(?:\\.|[^"\\])*"|'(?:\\.|[^'\\])+')
      | (?P<number>\.?\d(?:'?[\w.]|[eEpP][+-])*)
      | (?P<word>\w+)
      | (?P<mark>[^\s\w])''', re.S | re.X)

CLOSING = {'(': ')', '[': ']', '{': '}'}
REQUIRED_BEHIND = (['requires'], ['='], ['&'], ['|'])  # else `requires (…)` is a condition, not an expression
SCOPES = {'namespace', 'class', 'struct', 'union', 'enum'}
IS_NAME = re.compile(r'(?!(?:requires|explicit|noexcept|decltype|alignas)\b)\w+')


def tokens_of(text):
    """Pairs of token and line, without comments and preprocessor lines; of a string only its quotes."""
    tokens, line, at = [], 1, 0
    for match in TOKEN.finditer(text):
        line, at = line + text.count('\n', at, match.start()), match.start()
        if match.lastgroup == 'skipped':
            continue
        tokens.append(('""' if match['text'] else match.group(), line))
    return tokens


def behind(tokens, i):
    """The index behind the group that token i opens."""
    closing = [CLOSING[tokens[i][0]]]
    while closing:
        i += 1
        if tokens[i][0] in CLOSING:
            closing.append(CLOSING[tokens[i][0]])
        elif tokens[i][0] in CLOSING.values() and tokens[i][0] != closing.pop():
            raise ValueError(f'line {tokens[i][1]}: brackets do not match')
    return i + 1


def behind_parameters(tokens, i):
    """The index behind the <...> of a template, which token i opens."""
    depth = 0
    while True:
        if tokens[i][0] in CLOSING:
            i = behind(tokens, i)
            continue
        depth += {'<': 1, '>': -1}.get(tokens[i][0], 0)
        i += 1
        if depth == 0:
            return i


def name_of(head):
    """Name and line of a function, from the tokens before its body: the word before its parameters."""
    words = [token for token, _ in head]
    if 'operator' in words:
        first = words.index('operator')
        return ''.join(words[first:words.index('(', first + 2)]), head[first][1]
    for i in range(1, len(words)):
        at = i - 1
        if words[i] == '(' and words[at] == '>':  # of a specialisation, name<...>(
            at = max(k for k in range(at) if words[k] == '<' and words[k:i].count('<') == words[k:i].count('>')) - 1
        if words[i] == '(' and IS_NAME.fullmatch(words[at]):
            return ('~' if words[at - 1:at] == ['~'] else '') + words[at], head[at][1]
    raise ValueError(f'line {head[0][1]}: this function has no name')


def functions_of(text):
    """Triples of line, name, and number of lines. Outside of functions braces are those of scopes, which are
    entered; of values, behind which a declaration goes on; or of a function's body, behind which it ends."""
    tokens, head, i = tokens_of(text), [], 0
    while i < len(tokens):
        token, line = tokens[i]
        words = [word for word, _ in head]
        if token == 'template' and i + 1 < len(tokens) and tokens[i + 1][0] == '<':
            i = behind_parameters(tokens, i + 1)
        elif token in '([':
            head += [(token, line), ({'(': ')', '[': ']'}[token], line)]
            i = behind(tokens, i)
        elif token == '{':
            if SCOPES & set(words) or words == ['extern', '""']:
                head, i = [], i + 1
                continue
            end = behind(tokens, i)
            follows = tokens[end][0] if end < len(tokens) else ''
            before = words[:-2] if words[-2:] == ['(', ')'] else words
            is_requirement = before[-1:] == ['requires'] and (before is words or before[-2:-1] in REQUIRED_BEHIND)
            is_value = follows and follows in ';,{(>=&|+-*/.?:' or '(' not in words or is_requirement
            if not is_value:
                name, begin = name_of(head)
                yield begin, name, tokens[end - 1][1] - begin + 1
                head = []
            else:
                head.append(('{}', line))
            i = end
        elif token in ';}' or (token == ':' and words[-1:] in (['public'], ['private'], ['protected'])):
            head, i = [], i + 1
        else:
            head.append((token, line))
            i += 1


def main(arguments):
    every = '--all' in arguments
    found = []
    for argument in arguments:
        root = pathlib.Path(argument)
        for file in [root] if root.is_file() else sorted(root.rglob('*.[ch]pp')):
            try:
                found += [(lines, f'{file}:{line} {name} {lines}')
                          for line, name, lines in functions_of(file.read_text(encoding='utf-8'))
                          if every or lines > MOST]
            except ValueError as error:
                sys.exit(f'{file}: {error}')
    for _, text in sorted(found, key=lambda one: -one[0]):
        print(text)
    return 1 if found and not every else 0


if __name__ == '__main__':
    sys.exit(main(sys.argv[1:]))
