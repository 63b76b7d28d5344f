// How every parser is measured: the same loops around each, compiled into the translation unit that knows the parser.
//
// A parser is a class with
//     std::size_t parse(const char* data, std::size_t size);   takes one message; the bytes it took, 0 where it refused
//     std::size_t drip(const char* data, std::size_t size);    the same, offered byte by byte
//     std::size_t body(const char* data, std::size_t size);    the same, chunked content included
//     Seen seen() const;                                       what it found, for the check that all found the same
// parse() writes what it finds into members, and nothing else happens in the timed loop: the length and the address of the input
// are hidden from the compiler before, and the members escape by address after, so that no work can be folded away and no copy is
// charged.
#pragma once

#include <benchmark/benchmark.h>

#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "inputs.hpp"

namespace microbench {

// Room for the fields of the longest input (drip_11248 has 206).
inline constexpr std::size_t fields_max = 256;

// What a parser found in one message. `fields` stays empty for one that does not report them.
struct Seen {
    std::string method, target;
    int minor = -1;
    std::vector<std::pair<std::string, std::string>> fields;
};

struct Parser {
    std::string name;
    bool reports_fields;
    std::function<bool(const Input&)> takes;
    std::function<std::vector<Seen>(const Input&)> look;  // empty: refused, or did not take exactly the bytes
    std::function<void(benchmark::State&, const Input&)> run;
};

inline std::vector<Parser>& parsers() {
    static std::vector<Parser> list;
    return list;
}

template <class Type>
inline void hide(Type& value) {
    asm volatile("" : "+r"(value));  // the compiler must take the register as new
}

template <class Type>
inline void escape(Type& object) {
    asm volatile("" : : "r"(&object) : "memory");  // someone may read all of it, and change any memory
}

template <class P>
inline std::size_t take(P& parser, const Input& input, const char* data, std::size_t size) {
    return input.drip ? parser.drip(data, size) : input.body ? parser.body(data, size) : parser.parse(data, size);
}

inline std::string joined(const Input& input) {
    std::string bytes;
    for (const std::string& message : input.messages) bytes += message;
    return bytes;
}

template <class P>
void measure(benchmark::State& state, const Input& input, P& parser) {
    const std::string all = joined(input);
    if (input.pipelined) {
        for (auto _ : state) {
            const char* data = all.data();
            std::size_t left = all.size();
            hide(data);
            hide(left);
            while (left > 0) {
                const std::size_t taken = parser.parse(data, left);
                escape(parser);
                data += taken;
                left -= taken;
            }
        }
    } else {
        for (auto _ : state) {
            for (const std::string& message : input.messages) {
                const char* data = message.data();
                std::size_t size = message.size();
                hide(data);
                hide(size);
                std::size_t taken = take(parser, input, data, size);
                hide(taken);
                escape(parser);
            }
        }
    }
    state.counters["requests"] = static_cast<double>(input.messages.size());
    state.counters["bytes"] = static_cast<double>(all.size());
}

// A parser of callbacks takes all of a pipeline in one call and keeps the last message; the messages of a pipeline are equal.
template <class P>
std::vector<Seen> look_with(const Input& input, P& parser) {
    std::vector<Seen> list;
    const std::string all = joined(input);
    std::size_t at = 0;
    for (const std::string& message : input.messages) {
        const std::string_view bytes = input.pipelined ? std::string_view(all).substr(at) : std::string_view(message);
        const std::size_t taken = take(parser, input, bytes.data(), bytes.size());
        if (input.pipelined && taken == all.size()) return std::vector<Seen>(input.messages.size(), parser.seen());
        if (taken != message.size()) return {};
        at += taken;
        list.push_back(parser.seen());
    }
    return list;
}

// `make` makes a parser: a function without parameters, so that one class can be measured in several settings.
template <class Make>
void add_parser(std::string name, bool reports_fields, std::function<bool(const Input&)> takes, Make make) {
    parsers().push_back({std::move(name), reports_fields, std::move(takes),
                         [make](const Input& input) {
                             auto parser = make();
                             return look_with(input, parser);
                         },
                         [make](benchmark::State& state, const Input& input) {
                             auto parser = make();
                             measure(state, input, parser);
                         }});
}

// Each in its own file.
void add_ours();
void add_picohttpparser();
void add_llhttp();
void add_http_parser();
void add_beast();

}  // namespace microbench
