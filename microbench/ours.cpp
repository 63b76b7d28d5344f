// Our parser, in every kernel, as full parse and as minimal scan.
#include <array>

#include "../http_parse.hpp"
#include "measure.hpp"

namespace microbench {
namespace {

// The kernel is forced as long as the object lives; without a name it stays the one that start-up chose.
class Forced {
public:
    explicit Forced(std::string_view name) : before_(http::kernel().name) {
        if (!name.empty()) http::use_kernel(name);
    }
    ~Forced() { http::use_kernel(before_); }
    Forced(const Forced&) = delete;
    Forced& operator=(const Forced&) = delete;

private:
    std::string_view before_;
};

Seen head_of(const http::Request& request) {
    constexpr const char* names[] = {"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS", "TRACE", "CONNECT", "?"};
    return {names[static_cast<std::size_t>(request.method)], std::string(request.target), request.version_minor, {}};
}

// `result` is that of a head; the content behind it is taken off.
std::size_t with_content(const http::Result& result, const http::Request& request, std::string_view input) {
    http::Body body;
    if (result.status != http::Status::complete) return 0;
    if (http::Body::begin(body, request, http::body_bytes_limit).status != http::Status::incomplete) return result.consumed;
    const http::Result content = body.discard(input.substr(result.consumed));
    return content.status == http::Status::complete ? result.consumed + content.consumed : 0;
}

class Scan {
public:
    explicit Scan(std::string_view kernel) : forced_(kernel) {}

    std::size_t parse(const char* data, std::size_t size) {
        http::Resume resume{};
        const http::Result result = http::scan({data, size}, request_, resume, limits_);
        return result.status == http::Status::complete ? result.consumed : 0;
    }
    std::size_t drip(const char* data, std::size_t size) {
        http::Resume resume{};
        for (std::size_t length = 1;; ++length) {
            const http::Result result = http::scan({data, length}, request_, resume, limits_);
            if (result.status == http::Status::complete) return result.consumed;
            if (result.status != http::Status::incomplete || length == size) return 0;
        }
    }
    std::size_t body(const char* data, std::size_t size) {
        http::Resume resume{};
        return with_content(http::scan({data, size}, request_, resume, limits_), request_, {data, size});
    }
    Seen seen() const { return head_of(request_); }

private:
    Forced forced_;
    http::Request request_;
    http::Limits limits_{std::size_t{1} << 20};
};

class Full {
public:
    explicit Full(std::string_view kernel) : forced_(kernel) {}

    std::size_t parse(const char* data, std::size_t size) {
        http::Resume resume{};
        const http::Result result = http::parse({data, size}, request_, fields_, resume, limits_);
        return result.status == http::Status::complete ? result.consumed : 0;
    }
    std::size_t drip(const char* data, std::size_t size) {
        http::Resume resume{};
        for (std::size_t length = 1;; ++length) {
            const http::Result result = http::parse({data, length}, request_, fields_, resume, limits_);
            if (result.status == http::Status::complete) return result.consumed;
            if (result.status != http::Status::incomplete || length == size) return 0;
        }
    }
    std::size_t body(const char* data, std::size_t size) {
        http::Resume resume{};
        return with_content(http::parse({data, size}, request_, fields_, resume, limits_), request_, {data, size});
    }
    Seen seen() const {
        Seen seen = head_of(request_);
        seen.method = request_.method_name;
        for (const http::Field& field : request_.fields) seen.fields.emplace_back(field.name, field.value);
        return seen;
    }

private:
    Forced forced_;
    http::FullRequest request_;
    std::array<http::Field, fields_max> fields_;
    http::Limits limits_{std::size_t{1} << 20};
};

bool takes_all(const Input&) {
    return true;
}

}  // namespace

void add_ours() {
    add_parser("full", true, takes_all, [] { return Full(""); });
    add_parser("scan", false, takes_all, [] { return Scan(""); });
    for (const http::Kernel& kernel : http::kernels()) {
        if (!kernel.supported()) continue;
        add_parser("full-" + std::string(kernel.name), true, takes_all, [name = kernel.name] { return Full(name); });
        add_parser("scan-" + std::string(kernel.name), false, takes_all, [name = kernel.name] { return Scan(name); });
    }
}

}  // namespace microbench
