// llhttp and http_parser have one interface under two names: callbacks that say which bytes belong to what. This collects their
// views.
#pragma once

#include <array>
#include <string_view>

#include "measure.hpp"

namespace microbench {

struct View {
    const char* data = nullptr;
    std::size_t size = 0;

    // An element that arrives in pieces is told in pieces; they are neighbours in our buffer.
    void extend(const char* at, std::size_t length) {
        if (size == 0) data = at;
        size += length;
    }
    std::string text() const { return {data, size}; }
};

struct Collected {
    View target;
    std::array<View, fields_max> names, values;
    std::size_t count = 0;     // of names
    bool in_value = true;      // the last thing told was a value, or nothing yet
    std::size_t messages = 0;  // complete
    int minor = 0;
    unsigned method = 0;

    void begin() {
        target.size = 0;
        count = 0;
        in_value = true;
    }
    void name(const char* at, std::size_t length) {
        if (in_value) {
            names[count].size = 0;
            values[count].size = 0;
            ++count;
            in_value = false;
        }
        names[count - 1].extend(at, length);
    }
    void value(const char* at, std::size_t length) {
        in_value = true;
        values[count - 1].extend(at, length);
    }
    Seen seen(const char* method_name) const {
        Seen seen{method_name, target.text(), minor, {}};
        for (std::size_t i = 0; i < count; ++i) seen.fields.emplace_back(names[i].text(), values[i].text());
        return seen;
    }
};

}  // namespace microbench
