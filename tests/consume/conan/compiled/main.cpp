// What the compiled library has without types: checkpoints and the steps of a training.
#include <cstdio>

#include <tessera/compiled.hpp>

using namespace tessera;

struct weights {
  feature_vector<float> values = feature_vector<float>(4);
  using gradients = weights;
  static void parts(auto& each, auto&... of) { each("values", of.values...); }
};

int main() {
  context ctx(1);
  weights w, read;
  train::training t(w, train::sgd{});
  train::train_step(ctx, t, {.rate = 0.5}, [&](int) {
    for (float& g : t.gradients.values) g = 1;
    return train::token_loss{1, 1};
  });
  train::save(t, "checkpoint", {});
  train::checkpoint("checkpoint").load(read);
  std::printf("%g\n", double(read.values[3]));
  return read.values[3] == -0.5f ? 0 : 1;
}
