// picohttpparser (h2o): views of every field, no meaning of any.
#include "../build/rivals/picohttpparser/picohttpparser.h"

#include <cstring>

#include "measure.hpp"

namespace microbench {
namespace {

class Pico {
public:
    std::size_t parse(const char* data, std::size_t size, std::size_t last = 0) {
        count_ = fields_max;
        const int taken =
            phr_parse_request(data, size, &method_, &method_size_, &target_, &target_size_, &minor_, fields_, &count_, last);
        partial_ = taken == -2;
        return taken > 0 ? static_cast<std::size_t>(taken) : 0;
    }
    std::size_t drip(const char* data, std::size_t size) {
        for (std::size_t length = 1; length <= size; ++length) {
            const std::size_t taken = parse(data, length, length - 1);
            if (taken != 0 || !partial_) return taken;
        }
        return 0;
    }
    // The decoder moves the content together in its buffer, so it works on a copy; the copy is part of its price.
    std::size_t body(const char* data, std::size_t size) {
        const std::size_t head = parse(data, size);
        if (head == 0) return 0;
        phr_chunked_decoder decoder{};
        decoder.consume_trailer = 1;
        copy_.resize(size - head);
        std::memcpy(copy_.data(), data + head, size - head);
        std::size_t length = size - head;
        const ssize_t rest = phr_decode_chunked(&decoder, copy_.data(), &length);
        return rest >= 0 ? size - static_cast<std::size_t>(rest) : 0;
    }
    Seen seen() const {
        Seen seen{{method_, method_size_}, {target_, target_size_}, minor_, {}};
        for (std::size_t i = 0; i < count_; ++i)
            seen.fields.emplace_back(std::string(fields_[i].name, fields_[i].name_len),
                                     std::string(fields_[i].value, fields_[i].value_len));
        return seen;
    }

private:
    const char* method_ = nullptr;
    const char* target_ = nullptr;
    std::size_t method_size_ = 0, target_size_ = 0, count_ = 0;
    int minor_ = 0;
    bool partial_ = false;
    phr_header fields_[fields_max];
    std::string copy_;
};

}  // namespace

void add_picohttpparser() {
    add_parser(
        "picohttpparser", true, [](const Input&) { return true; }, [] { return Pico(); });
}

}  // namespace microbench
