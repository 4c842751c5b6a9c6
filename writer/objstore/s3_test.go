package objstore_test

import (
	"bufio"
	"encoding/xml"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"sluice/writer/objstore"
	"sluice/writer/objstore/objstoretest"
)

// TestS3 runs the suite against a bucket in memory that speaks just enough of the protocol. It proves what requests the
// store makes and how it reads answers, not that a given service keeps them atomic.
func TestS3(t *testing.T) {
	objstoretest.Run(t, func(t *testing.T) objstore.Store {
		srv := httptest.NewServer(&bucket{objects: map[string][]byte{}})
		t.Cleanup(srv.Close)
		s, err := objstore.OpenS3(objstore.S3Options{Endpoint: strings.TrimPrefix(srv.URL, "http://"), Insecure: true, Region: "us-east-1",
			Bucket: "lake", Prefix: "/some/prefix/", AccessKey: "key", SecretKey: "secret", PathStyle: true, Transport: srv.Client().Transport})
		if err != nil {
			t.Fatal(err)
		}
		if s.Root() != "s3://lake/some/prefix" {
			t.Fatalf("root %s", s.Root())
		}
		return s
	})
}

// TestS3LostAnswer: an answer that is lost after the PUT took effect is an error, never ErrExists from a second try.
func TestS3LostAnswer(t *testing.T) {
	b := &bucket{objects: map[string][]byte{}, lose: true}
	srv := httptest.NewServer(b)
	t.Cleanup(srv.Close)
	s, err := objstore.OpenS3(objstore.S3Options{Endpoint: strings.TrimPrefix(srv.URL, "http://"), Insecure: true, Region: "us-east-1",
		Bucket: "lake", AccessKey: "key", SecretKey: "secret", PathStyle: true, Transport: srv.Client().Transport})
	if err != nil {
		t.Fatal(err)
	}
	err = s.Put(t.Context(), s.Root()+"/x", []byte("x"))
	if err == nil || strings.Contains(err.Error(), objstore.ErrExists.Error()) {
		t.Errorf("put: %v, want the loss", err)
	}
	if b.puts != 1 {
		t.Errorf("%d PUT requests, want 1", b.puts)
	}
}

// bucket is an S3 bucket in memory, addressed by path.
type bucket struct {
	mu      sync.Mutex // held for a whole request
	objects map[string][]byte
	puts    int
	lose    bool // fail PUTs after their effect
}

func (b *bucket) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	b.mu.Lock()
	defer b.mu.Unlock()
	key := strings.TrimPrefix(r.URL.Path, "/lake/")
	body, ok := b.objects[key]
	switch {
	case r.Method == http.MethodPut:
		b.put(w, r, key)
	case r.Method == http.MethodDelete:
		delete(b.objects, key)
		w.WriteHeader(http.StatusNoContent)
	case r.URL.Query().Get("list-type") == "2":
		b.list(w, r.URL.Query().Get("prefix"))
	case !ok:
		fail(w, http.StatusNotFound, "NoSuchKey")
	default:
		w.Header().Set("ETag", `"e"`)
		http.ServeContent(w, r, "", time.Unix(1700000000, 0), strings.NewReader(string(body)))
	}
}

func fail(w http.ResponseWriter, status int, code string) {
	w.WriteHeader(status)
	fmt.Fprintf(w, "<Error><Code>%s</Code></Error>", code)
}

func (b *bucket) put(w http.ResponseWriter, r *http.Request, key string) {
	b.puts++
	body, err := payload(r)
	if err != nil {
		fail(w, http.StatusBadRequest, "IncompleteBody")
		return
	}
	if _, ok := b.objects[key]; ok && r.Header.Get("If-None-Match") == "*" {
		fail(w, http.StatusPreconditionFailed, "PreconditionFailed")
		return
	}
	b.objects[key] = body
	if b.lose {
		fail(w, http.StatusServiceUnavailable, "SlowDown")
		return
	}
	w.Header().Set("ETag", `"e"`)
}

// payload undoes aws-chunked: size in hex, parameters, line end, data, line end, until size 0.
func payload(r *http.Request) ([]byte, error) {
	if r.Header.Get("X-Amz-Decoded-Content-Length") == "" {
		return io.ReadAll(r.Body)
	}
	in := bufio.NewReader(r.Body)
	var body []byte
	for {
		line, err := in.ReadString('\n')
		if err != nil {
			return nil, err
		}
		size, _, _ := strings.Cut(strings.TrimSpace(line), ";")
		n, err := strconv.ParseInt(size, 16, 64)
		if err != nil || n == 0 {
			return body, err
		}
		chunk := make([]byte, n+2)
		if _, err := io.ReadFull(in, chunk); err != nil {
			return nil, err
		}
		body = append(body, chunk[:n]...)
	}
}

func (b *bucket) list(w http.ResponseWriter, prefix string) {
	type object struct {
		Key          string
		Size         int
		LastModified string
	}
	var result struct {
		XMLName  xml.Name `xml:"ListBucketResult"`
		Contents []object
	}
	for k, body := range b.objects {
		if strings.HasPrefix(k, prefix) {
			result.Contents = append(result.Contents, object{k, len(body), "2023-11-14T22:13:20Z"})
		}
	}
	slices.SortFunc(result.Contents, func(x, y object) int { return strings.Compare(x.Key, y.Key) })
	xml.NewEncoder(w).Encode(result)
}
