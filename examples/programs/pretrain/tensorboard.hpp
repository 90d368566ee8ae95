// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <array>
#include <bit>
#include <cstdint>
#include <cstring>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "curves.hpp"

// The event files of TensorBoard: records of TensorFlow (TFRecord), each an Event of protocol buffers
// (tensorflow/core/util/event.proto).

namespace pretrain {

/// CRC-32C (Castagnoli), as TFRecord masks it.
inline std::uint32_t masked_crc(std::string_view bytes) {
  static constexpr auto table = [] {
    std::array<std::uint32_t, 256> all{};
    for (std::uint32_t i = 0; i < 256; ++i) {
      std::uint32_t c = i;
      for (int bit = 0; bit < 8; ++bit) c = c & 1 ? (c >> 1) ^ 0x82f63b78u : c >> 1;
      all[i] = c;
    }
    return all;
  }();
  std::uint32_t crc = ~0u;
  for (const char byte : bytes) crc = (crc >> 8) ^ table[(crc ^ static_cast<unsigned char>(byte)) & 255];
  crc = ~crc;
  return std::rotl(crc, 17) + 0xa282ead8u;
}

namespace protocol_buffer {

template <class Number> std::string fixed_size(Number number) {
  std::string bytes(sizeof number, '\0');
  std::memcpy(bytes.data(), &number, sizeof number);
  return bytes;
}
inline std::string varint(std::uint64_t number) {
  std::string bytes;
  for (; number >= 128; number >>= 7) bytes += static_cast<char>((number & 127) | 128);
  return bytes + static_cast<char>(number);
}
inline std::string field(int number, std::string_view text) {
  return varint((std::uint64_t(number) << 3) | 2) + varint(text.size()) + std::string(text);
}
inline std::string field(int number, std::int64_t value) {
  return varint(std::uint64_t(number) << 3) + varint(static_cast<std::uint64_t>(value));
}
inline std::string field(int number, double value) {
  return varint((std::uint64_t(number) << 3) | 1) + fixed_size(value);
}
inline std::string field(int number, float value) {
  return varint((std::uint64_t(number) << 3) | 5) + fixed_size(value);
}

}  // namespace protocol_buffer

/// An event file with the points of a curve; times are seconds of training.
inline std::string tensorboard_events(std::vector<curve_point> const& points) {
  using protocol_buffer::field;
  std::string file;
  const auto record = [&](std::string const& event) {
    const std::string length = protocol_buffer::fixed_size(std::uint64_t(event.size()));
    file += length + protocol_buffer::fixed_size(masked_crc(length)) + event +
            protocol_buffer::fixed_size(masked_crc(event));
  };
  record(field(1, 0.0) + field(3, std::string_view("brain.Event:2")));
  for (curve_point const& p : points) {
    std::string values;
    for (auto const& [tag, value] :
         {std::pair{"loss/training", p.training_loss}, std::pair{"loss/validation", p.validation_loss},
          std::pair{"learning_rate", p.learning_rate}, std::pair{"tokens", p.tokens}})
      values += field(1, field(1, std::string_view(tag)) + field(2, static_cast<float>(value)));
    record(field(1, p.training_time.count()) + field(2, std::int64_t{p.step}) + field(5, values));
  }
  return file;
}

}  // namespace pretrain
