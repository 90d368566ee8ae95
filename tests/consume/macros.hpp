// SPDX-License-Identifier: BSD-3-Clause
// Macros that other headers define, which may come before tessera's headers: docs/how_to/use_in_a_project.md
// names them.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <filesystem>
#include <string>
#include <vector>

#include <complex.h>  // I
#include <sys/param.h>
#include <sys/sysmacros.h>
#include <syslog.h>
#include <termios.h>

// ---- Qt, with its keywords ----
#define slots
#define signals public
#define emit
#define foreach(variable, container) for (variable : container)
#define forever for (;;)

// ---- Windows: minwindef.h, rpcndr.h, windef.h, wingdi.h, winerror.h, winnt.h, winuser.h, dlgs.h ----
#define near
#define far
#define small char
#define hyper long long
#define interface struct
#define cdecl
#define min(a, b) (((a) < (b)) ? (a) : (b))
#define max(a, b) (((a) > (b)) ? (a) : (b))
#define IN
#define OUT
#define OPTIONAL
#define CONST const
#define VOID void
#define THIS
#define PURE = 0
#define STRICT 1
#define TRUE 1
#define FALSE 0
#define ERROR 0
#define NO_ERROR 0L
#define DELETE 0x00010000L
#define IGNORE 0
#define INFINITE 0xffffffff
#define ABSOLUTE 1
#define RELATIVE 2
#define OPAQUE 2
#define TRANSPARENT 1
#define GetObject GetObjectA
#define GetMessage GetMessageA
#define LoadImage LoadImageA
#define grp1 0x0430
#define rad1 0x0420
#define lst1 0x0460

// ---- X11: X.h, Xlib.h, Xutil.h ----
#define None 0L
#define Bool int
#define Status int
#define True 1
#define False 0
#define Success 0
#define Always 2
#define Above 0
#define Below 1
#define Complex 0
#define Unsorted 0
#define CursorShape 0
#define KeyPress 2
#define GrayScale 1

// ---- GLib, PostgreSQL, the kernel ----
#define ABS(a) ((a) < 0 ? -(a) : (a))
#define CLAMP(x, low, high) ((x) > (high) ? (high) : (x) < (low) ? (low) : (x))
#define Min(a, b) ((a) < (b) ? (a) : (b))
#define Max(a, b) ((a) > (b) ? (a) : (b))
#define likely(x) __builtin_expect(!!(x), 1)
#define unlikely(x) __builtin_expect(!!(x), 0)
#define BIT(n) (1ul << (n))
#define ARRAY_SIZE(a) (sizeof(a) / sizeof(a[0]))
#define PAGE_SIZE 4096
#define __unused __attribute__((unused))
#define unix 1
#define linux 1

// ---- f2c.h ----
#define abs(x) ((x) >= 0 ? (x) : -(x))
#define dabs(x) (double)abs(x)
#define round(x) ((x) >= 0 ? (long)((x) + 0.5) : (long)((x) - 0.5))

// ---- R: Rinternals.h, Rmath.h and Error.h without R_NO_REMAP ----
#define choose Rf_choose
#define error Rf_error
#define eval Rf_eval
#define length(x) Rf_length(x)
#define sign Rf_sign
#define warning Rf_warning

// ---- glog, doctest, Flex ----
#define LOG(severity) severity
#define CHECK(condition) condition
#define REQUIRE(condition) condition
#define INFO(text) text
#define FAIL(text) text
#define BEGIN
