// The header survives macros that other headers are known to define, and leaves none of its own behind.
#include <doctest/doctest.h>

// The standard library comes first: it makes no promise about such macros, and this is about our header.
#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>
#if defined(__x86_64__)
#include <immintrin.h>
#endif

#define min(a, b) 0
#define max(a, b) 0
#define GET 1
#define POST 1
#define DELETE 1
#define OPTIONS 1
#define TRACE 1
#define ERROR 0
#define NO_ERROR 0
#define IN
#define OUT
#define CONST const
#define unix 1
#define linux 1
#define near
#define far
#define small char
#define interface struct
#define major(x) 0
#define minor(x) 0
#define check(x) 0
#define check_equal 0
#define assert(x) 0
#define byte unsigned char
#define Status int
#define Bool int
#define True 1
#define False 0
#define None 0
#define Complex 1
#define Success 0
#define Always 2
#undef Status
#include "../http_parse.hpp"

static_assert(sizeof(http::Body) == 16);

#undef min
#undef max
#undef check
#undef check_equal
#undef assert

TEST_CASE("the header compiles among hostile macros and works") {
    http::Request request;
    http::Resume resume{};
    CHECK(http::scan("GET / HTTP/1.0\r\n\r\n", request, resume, {}).status == http::Status::complete);
}
