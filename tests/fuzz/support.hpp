// What the fuzz targets share: the server's code without its main, and a check that stays on in every build.
//
// Each target is a file of its own that defines LLVMFuzzerTestOneInput; `make fuzz` builds them with libFuzzer, and
// tests/server_corpus.cpp runs the inputs in corpus/ through them in every ordinary test build.

#ifndef CEILING_TESTS_FUZZ_SUPPORT_HPP
#define CEILING_TESTS_FUZZ_SUPPORT_HPP

#ifndef CEILING_NO_MAIN
#define CEILING_NO_MAIN
#endif
#include "../../server.cpp"

namespace fuzz {

inline void demand(bool condition, const char* what) {
    if (condition) return;
    std::fprintf(stderr, "fuzz: broken: %s\n", what);
    std::abort();
}

/// A copy that ends where its memory ends, so that AddressSanitizer sees a read past it. One at a time: allocating for each
/// would halve the executions per second.
class Exact {
public:
    explicit Exact(std::string_view bytes) : size_(bytes.size()) {
        demand(size_ <= sizeof memory, "the input fits");
        bytes.copy(memory + sizeof memory - size_, size_);
    }
    [[nodiscard]] std::string_view view() const noexcept { return {memory + sizeof memory - size_, size_}; }

private:
    inline static char memory[65536];
    std::size_t size_;
};

}  // namespace fuzz

#endif  // CEILING_TESTS_FUZZ_SUPPORT_HPP
