// SPDX-License-Identifier: BSD-3-Clause

// A module that pretrain must not take: behind its first member stands something else.

struct module_of_another_build {
  char const* build;
};

extern "C" const module_of_another_build pretrain_model_module{"of another compiler"};
