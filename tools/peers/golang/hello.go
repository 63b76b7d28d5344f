// The Go contestant: net/http as the articles use it, with body and headers from the environment.
package main

import (
	"log"
	"net/http"
	"os"
	"strings"
)

func main() {
	body := []byte(os.Getenv("CEILING_BODY"))
	names, values := []string{"Content-Type"}, []string{os.Getenv("CEILING_TYPE")}
	for _, line := range strings.Split(os.Getenv("CEILING_HEADERS"), "\n") {
		if name, value, found := strings.Cut(line, ": "); found {
			names, values = append(names, name), append(values, value)
		}
	}
	http.HandleFunc("/", func(w http.ResponseWriter, r *http.Request) {
		header := w.Header()
		for i, name := range names {
			header.Set(name, values[i])
		}
		w.Write(body)
	})
	log.Fatal(http.ListenAndServe("127.0.0.1:"+os.Getenv("CEILING_PORT"), nil))
}
