#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""Derives the polynomials of include/tessera/ops/ and simd/ and prints them with their errors.

    python3 scripts/fit_activations.py

Needs the standard library only. Each polynomial is a minimax one, found by the second algorithm of Remez
(1934): choose coefficients whose error is +E, -E, +E, ... at a set of points, move the points to the extrema
of that error, repeat. The first step is solved by Newton's method, so that the error may depend on the
coefficients in any smooth way. Arithmetic is decimal with 40 digits, because the polynomial for double is
wanted to 1e-18. Errors printed are those of the coefficients as rounded to float or double; rounding while
they are evaluated comes on top, and is measured by tests/ops/ and tests/simd/.
"""

import math
import struct
from decimal import Decimal as D, getcontext

getcontext().prec = 40
GRID = 4000


def solve(matrix, right):
    """The solution of a square linear system, by elimination with row exchanges."""
    rows = [row + [value] for row, value in zip(matrix, right)]
    n = len(rows)
    for i in range(n):
        pivot = max(range(i, n), key=lambda k: abs(rows[k][i]))
        rows[i], rows[pivot] = rows[pivot], rows[i]
        for k in range(i + 1, n):
            factor = rows[k][i] / rows[i][i]
            rows[k] = [a - factor * b for a, b in zip(rows[k], rows[i])]
    solution = [D(0)] * n
    for i in reversed(range(n)):
        known = sum(rows[i][j] * solution[j] for j in range(i + 1, n))
        solution[i] = (rows[i][n] - known) / rows[i][i]
    return solution


def alternating_extrema(points, errors, wanted):
    """`wanted` neighbouring points at which the error is largest with alternating signs."""
    found = []
    for i in range(len(points)):
        left = abs(errors[i - 1]) if i else D(0)
        right = abs(errors[i + 1]) if i + 1 < len(points) else D(0)
        if not errors[i] or abs(errors[i]) < left or abs(errors[i]) < right:
            continue
        if found and (errors[found[-1]] > 0) == (errors[i] > 0):
            if abs(errors[i]) > abs(errors[found[-1]]):
                found[-1] = i
        else:
            found.append(i)
    while len(found) > wanted:
        found.pop(0 if abs(errors[found[0]]) < abs(errors[found[-1]]) else -1)
    assert len(found) == wanted, "the error alternates too seldom: begin elsewhere"
    return [points[i] for i in found], [1 if errors[i] > 0 else -1 for i in found]


def remez(coefficients, interval, error, gradient):
    """Coefficients c that minimise the largest |error(c, x)| over the interval, and that error.
    interval(c) gives the bounds; gradient(c, x) lists the derivatives of error by each coefficient."""
    while True:
        low, high = interval(coefficients)
        points = [low + (high - low) * i / GRID for i in range(GRID + 1)]
        errors = [error(coefficients, x) for x in points]
        extrema, signs = alternating_extrema(points, errors, len(coefficients) + 1)
        sizes = [abs(error(coefficients, x)) for x in extrema]
        if max(sizes) < min(sizes) * D("1.00001"):
            return coefficients, max(sizes)
        for _ in range(4):
            matrix = [gradient(coefficients, x) + [D(-s)] for x, s in zip(extrema, signs)]
            step = solve(matrix, [-error(coefficients, x) for x in extrema])
            coefficients = [c + s for c, s in zip(coefficients, step)]


def horner(c, x):
    total = D(0)
    for coefficient in reversed(c):
        total = total * x + coefficient
    return total


def largest_error(coefficients, interval, error):
    low, high = interval(coefficients)
    return max(abs(error(coefficients, low + (high - low) * i / GRID)) for i in range(GRID + 1))


def to_float(x):
    return D(struct.unpack("f", struct.pack("f", float(x)))[0])


def to_double(x):
    return D(float(x))


def digits(x, single):
    """The shortest decimal that is read back as the same number."""
    x = float(x)
    if not single:
        return repr(x)
    return next(s for s in (f"{x:.{n}g}" for n in range(1, 10)) if to_float(D(s)) == D(x))


def fit_exponential(name, degree, mantissa_bits, rounded):
    """e^r = 1 + r + r^2 (c2 + c3 r + ...), |r| <= ln 2 / 2. The error is counted in units in the last place,
    which are half as large below 1; a margin of 1e-3 covers the rounding of n."""
    bound = D(2).ln() / 2 * D("1.001")
    ulp = lambda r: D(2) ** ((-1 if r < 0 else 0) - mantissa_bits)

    error = lambda c, r: (1 + r + r * r * horner(c, r) - r.exp()) / ulp(r)
    gradient = lambda c, r: [r ** (k + 2) / ulp(r) for k in range(len(c))]
    interval = lambda c: (-bound, bound)
    terms = degree - 1
    # Interpolation at Chebyshev nodes has the alternating error that the exchange begins with.
    nodes = [bound * D(math.cos(math.pi * (2 * i + 1) / (2 * terms))) for i in range(terms)]
    start = solve([[r**k for k in range(terms)] for r in nodes], [(r.exp() - 1 - r) / (r * r) for r in nodes])
    exact, _ = remez(start, interval, error, gradient)
    coefficients = [rounded(c) for c in exact]
    print(f"exponential, {name}: 2 (e^r - 1) / r, c0 ... c{degree - 1}")
    for c in [D(1)] + coefficients:
        print(f"  {digits(2 * c, rounded is to_float)}")
    print(f"  approximation error {largest_error(coefficients, interval, error):.3f} ulp")


def fit_power_of_two():
    """2^f, 0 <= f <= 1, with the relative error minimised."""
    degree = 6
    ln2 = D(2).ln()
    power = lambda f: (f * ln2).exp()
    error = lambda c, f: horner(c, f) / power(f) - 1
    gradient = lambda c, f: [(f**k if k else 1) / power(f) for k in range(len(c))]
    interval = lambda c: (D(0), D(1))
    terms = degree + 1
    nodes = [(1 + D(math.cos(math.pi * (2 * i + 1) / (2 * terms)))) / 2 for i in range(terms)]
    start = solve([[f**k for k in range(terms)] for f in nodes], [power(f) for f in nodes])
    exact, _ = remez(start, interval, error, gradient)
    coefficients = [to_float(c) for c in exact]
    print(f"power of two: 2^f, c0 ... c{degree}")
    for c in coefficients:
        print(f"  {digits(c, True)}")
    print(f"  approximation error {largest_error(coefficients, interval, error) * 2**23:.3f} ulp of 1")


def fit_gelu():
    """gelu(x) = max(x, 0) - a Phi(-a), a = |x|, Phi the normal distribution. Phi(-a) is approximated by
    P(a)^16, which behaves like the Gaussian it stands for. P(0)^16 = 1/2 keeps the derivative continuous at
    0. P is cut off at its first zero, of order 16 in the result, so that nothing jumps there. What is
    minimised is the absolute error."""
    power, degree = 16, 6
    first = D("0.5") ** (D(1) / power)
    phi = lambda a: D(math.erfc(float(a) / math.sqrt(2))) / 2

    polynomial = lambda c, a: first + a * horner(c, a)

    def end(c):
        """The first zero of the polynomial, by bisection from a step that crosses it."""
        high = D(0)
        while polynomial(c, high) > 0:
            high += D("0.125")
        low = high - D("0.125")
        while high - low > D("1e-30"):
            middle = (low + high) / 2
            low, high = (middle, high) if polynomial(c, middle) > 0 else (low, middle)
        return low

    error = lambda c, a: a * (polynomial(c, a) ** power - phi(a))
    gradient = lambda c, a: [a ** (k + 2) * power * polynomial(c, a) ** (power - 1) for k in range(degree)]
    interval = lambda c: (D(0), end(c))
    nodes = [D(5) * D(1 - math.cos(math.pi * (2 * i + 1) / (2 * degree))) / 2 for i in range(degree)]
    start = solve([[a ** (k + 1) for k in range(degree)] for a in nodes],
                  [phi(a) ** (D(1) / power) - first for a in nodes])
    exact, _ = remez(start, interval, error, gradient)
    first, coefficients = to_float(first), [to_float(c) for c in exact]
    print(f"gelu: P = c0 ... c{degree}, power {power}")
    for c in [first] + coefficients:
        print(f"  {digits(c, True)}")
    cut = to_float(end(coefficients))
    print(f"  cut at a = {digits(cut, True)}, where P = {polynomial(coefficients, cut):.1e}")
    print(f"  approximation error {largest_error(coefficients, interval, error):.2e}")
    print(f"  jump of the derivative at 0 {abs(2 * first**power - 1):.1e}")


def fit_pieces(name, function, first):
    """A function of a = |x| by one polynomial of degree 4 on each piece i - 1/2 <= a / width < i + 1/2 of 15,
    with the value `first` at 0; on the 16th piece, and beyond, it is 0. What is minimised is the absolute
    error. The polynomials are in a itself: less work than in the distance from the middle of a piece."""
    degree, pieces, width = 4, 15, 1 / D("2.625")
    table, worst = [], D(0)
    for i in range(pieces):
        low, high = max(D(0), (i - D("0.5")) * width), (i + D("0.5")) * width
        known = [first] if i == 0 else []
        powers = range(len(known), degree + 1)
        error = lambda c, a: horner(known + c, a) - function(a)
        gradient = lambda c, a: [a**k if k else D(1) for k in powers]
        interval = lambda c: (low, high)
        terms = len(powers)
        nodes = [low + (high - low) * D(1 - math.cos(math.pi * (2 * n + 1) / (2 * terms))) / 2 for n in range(terms)]
        start = solve([gradient(None, a) for a in nodes], [function(a) - horner(known, a) for a in nodes])
        exact, _ = remez(start, interval, error, gradient)
        coefficients = [to_float(c) for c in known + exact]
        worst = max(worst, largest_error(coefficients[len(known):], interval, error))
        table.append(coefficients)
    table.append([D(0)] * (degree + 1))
    print(f"{name}: rows c0 ... c{degree}, a column for each piece of width 1 / {1 / width}")
    for row in zip(*table):
        print("  {" + ", ".join(digits(c, True) for c in row) + "}")
    print(f"  approximation error {max(worst, abs(function((pieces - D('0.5')) * width))):.2e}")


def fit_gelu_in_pieces():
    phi = lambda a: D(math.erfc(float(a) / math.sqrt(2))) / 2
    density = lambda a: (-a * a / 2).exp() / D(2 * math.pi).sqrt()
    fit_pieces("gelu: a Phi(-a)", lambda a: a * phi(a), D(0))
    fit_pieces("its slope: Phi(-a) - a phi(a)", lambda a: phi(a) - a * density(a), D("0.5"))


if __name__ == "__main__":
    fit_exponential("float", 6, 23, to_float)
    fit_exponential("double", 11, 52, to_double)
    fit_power_of_two()
    fit_gelu()
    fit_gelu_in_pieces()
