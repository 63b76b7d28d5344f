// The requests that parsers are measured with. Bytes of our own, of the sizes and shapes that clients send.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace microbench {

struct Input {
    std::string name;
    std::vector<std::string> messages;  // one after the other in one iteration, each in memory of its own
    bool pipelined = false;             // or all in one buffer, as one arrival
    bool drip = false;                  // each arrives byte by byte
    bool body = false;                  // with chunked content behind the head
};

// What wrk sends to a server on this machine.
inline std::string wrk() {
    return "GET / HTTP/1.1\r\nHost: 127.0.0.1:8080\r\n\r\n";
}

// What `ab -k` sends.
inline std::string ab() {
    return "GET / HTTP/1.0\r\nConnection: Keep-Alive\r\nHost: 127.0.0.1:8080\r\nUser-Agent: ApacheBench/2.3\r\nAccept: */*\r\n\r\n";
}

// What wrk sends with the fields of a well-known framework comparison.
inline std::string plaintext() {
    return "GET /plaintext HTTP/1.1\r\nHost: bench.test:8080\r\n"
           "Accept: text/plain,text/html;q=0.9,application/xhtml+xml;q=0.9,application/xml;q=0.8,*/*;q=0.7\r\n"
           "Connection: keep-alive\r\n\r\n";
}

// A browser's page request.
inline std::string browser() {
    return "GET /articles/2026/11/ceiling-of-a-linux-box?page=2&sort=newest&lang=en HTTP/1.1\r\n"
           "Host: www.example.test\r\n"
           "User-Agent: Mozilla/5.0 (X11; Linux x86_64; rv:128.0) Gecko/20100101 Firefox/128.0\r\n"
           "Accept: text/html,application/xhtml+xml,application/xml;q=0.9,image/avif,image/webp,*/*;q=0.8\r\n"
           "Accept-Language: en-GB,en;q=0.7,de;q=0.3\r\n"
           "Accept-Encoding: gzip, deflate\r\n"
           "Referer: http://www.example.test/articles/2026/11/\r\n"
           "Connection: keep-alive\r\n"
           "Cookie: session=4f1c0a7e9b2d4c58a3e6; theme=dark; consent=v2.1-all; _visit=1732998000.5.1; cart=0123456789abcd\r\n"
           "Upgrade-Insecure-Requests: 1\r\n"
           "Sec-Fetch-Dest: document\r\n"
           "Sec-Fetch-Mode: navigate\r\n"
           "Sec-Fetch-Site: same-origin\r\n"
           "Priority: u=0, i\r\n"
           "Cache-Control: max-age=0\r\n\r\n";
}

inline std::string cookies() {
    std::string cookie;
    for (int i = 0; cookie.size() < 4096; ++i) cookie += "name" + std::to_string(i) + "=0123456789abcdef0123456789abcdef; ";
    cookie.resize(4096);
    return "GET / HTTP/1.1\r\nHost: www.example.test\r\nCookie: " + cookie + "x\r\nAccept: */*\r\n\r\n";
}

inline std::string short_fields() {
    std::string head = "GET / HTTP/1.1\r\nHost: a\r\n";
    for (int i = 1; i < 60; ++i)
        head += "X-" + std::to_string(i) + ": " + std::string(static_cast<std::size_t>(i % 5) + 1, 'v') + "\r\n";
    return head + "\r\n";
}

inline std::string chunked() {
    std::string message = "POST /upload HTTP/1.1\r\nHost: www.example.test\r\nTransfer-Encoding: chunked\r\n\r\n";
    for (int i = 0; i < 16; ++i) message += "200\r\n" + std::string(512, 'd') + "\r\n";
    return message + "0\r\n\r\n";
}

// Requests of many shapes in an order that repeats only after 512 of them: what a branch predictor cannot learn by heart shows
// here. The same ones on every run.
inline std::vector<std::string> mixed() {
    std::uint64_t state = 42;
    const auto below = [&state](std::uint64_t bound) {
        state = state * 6364136223846793005u + 1442695040888963407u;
        return static_cast<std::size_t>((state >> 33) % bound);
    };
    const char* const methods[] = {"GET", "GET", "GET", "GET", "POST", "HEAD", "PUT", "OPTIONS"};
    const char* const names[] = {"Accept",        "Accept-Language", "Accept-Encoding", "User-Agent", "Referer",  "Cookie",
                                 "Cache-Control", "Connection",      "X-Request-Id",    "DNT",        "Priority", "If-None-Match"};
    std::vector<std::string> messages;
    for (int i = 0; i < 512; ++i) {
        std::string head = std::string(methods[below(8)]) + " /" + std::string(below(60), 'p') + " HTTP/1.1\r\n";
        const std::size_t fields = 1 + below(12), host = below(fields);
        for (std::size_t field = 0; field < fields; ++field) {
            if (field == host) head += "Host: " + std::string(3 + below(20), 'h') + ".test\r\n";
            const std::string name = names[below(12)];
            head += name + ": " + (name == "Connection" ? std::string("keep-alive") : std::string(1 + below(90), 'v')) + "\r\n";
        }
        messages.push_back(head + "\r\n");
    }
    return messages;
}

inline std::vector<Input> inputs() {
    return {
        {"wrk_40", {wrk()}},
        {"ab_106", {ab()}},
        {"plaintext_170", {plaintext()}},
        {"browser_703", {browser()}},
        {"cookies_4k", {cookies()}},
        {"fields_60", {short_fields()}},
        {"mixed_512", mixed()},
        {"pipeline_16", std::vector<std::string>(16, wrk()), true},
        {"drip_703", {browser()}, false, true},
        {"drip_11248",
         {[] {
             std::string head = browser();  // sixteen times the bytes of drip_703: linear work takes sixteen times as long
             const std::string lines = head.substr(head.find("User-Agent"));
             head.resize(head.size() - 2);
             while (head.size() + lines.size() < 16 * browser().size()) head.insert(head.size(), lines.substr(0, lines.size() - 2));
             head += "X-Rest: ";
             head += std::string(16 * browser().size() - head.size() - 4, 'r') + "\r\n\r\n";
             return head;
         }()},
         false,
         true},
        {"chunked_8k", {chunked()}, false, false, true},
    };
}

}  // namespace microbench
