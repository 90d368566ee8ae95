// SPDX-License-Identifier: BSD-3-Clause

// Preloaded, tells MKL that this is a processor of Intel's: otherwise it chooses slower kernels.
extern "C" int mkl_serv_intel_cpu_true() { return 1; }
