// A small server that the tests run in sandboxes in the place of envd.
package main

import (
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"time"
)

func main() {
	host := "127.0.0.1"
	if len(os.Args) > 1 {
		host = os.Args[1]
	}
	fmt.Println("starting on", host)
	http.HandleFunc("/health", func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusNoContent) })
	http.HandleFunc("/env", func(w http.ResponseWriter, r *http.Request) { fmt.Fprint(w, os.Getenv(r.URL.Query().Get("name"))) })
	http.HandleFunc("/sh", func(w http.ResponseWriter, r *http.Request) {
		script, _ := io.ReadAll(r.Body)
		out, err := exec.Command("/bin/sh", "-c", string(script)).CombinedOutput()
		if err != nil {
			w.WriteHeader(http.StatusInternalServerError)
		}
		w.Write(out)
	})
	http.HandleFunc("/exit", func(http.ResponseWriter, *http.Request) { os.Exit(7) })
	http.HandleFunc("/connect", func(w http.ResponseWriter, r *http.Request) {
		c, err := net.DialTimeout("tcp", r.URL.Query().Get("to"), time.Second)
		if err != nil {
			http.Error(w, err.Error(), http.StatusBadGateway)
			return
		}
		c.Close()
	})
	if err := http.ListenAndServe(net.JoinHostPort(host, "49983"), nil); err != nil {
		fmt.Println(err)
		os.Exit(1)
	}
}
