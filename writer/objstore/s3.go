package objstore

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"iter"
	"net/http"
	"strings"

	"github.com/minio/minio-go/v7"
	"github.com/minio/minio-go/v7/pkg/credentials"
)

// S3Options say where a bucket is.
type S3Options struct {
	Endpoint     string // host[:port]
	Insecure     bool   // http instead of https
	Region       string
	Bucket       string
	Prefix       string // below which all objects are; may be empty
	AccessKey    string
	SecretKey    string
	SessionToken string
	PathStyle    bool              // bucket in the path instead of the host name
	Transport    http.RoundTripper // nil = the SDK's
}

// S3 is a Store in a bucket of an S3 service that supports If-None-Match on PUT.
type S3 struct {
	bucket string
	root   string // s3://bucket/prefix
	prefix string // "" or ends in a slash
	client *minio.Client
	// once retries nothing: when a create-only PUT took effect but its answer was lost, the SDK's second try would be told
	// "exists already", and a caller would take its own object for a stranger's.
	once *minio.Client
}

var _ Store = (*S3)(nil)

// OpenS3 makes a store; it sends nothing.
func OpenS3(o S3Options) (*S3, error) {
	s := &S3{bucket: o.Bucket, prefix: strings.Trim(o.Prefix, "/")}
	s.root = strings.TrimRight("s3://"+o.Bucket+"/"+s.prefix, "/")
	if s.prefix != "" {
		s.prefix += "/"
	}
	for _, c := range []struct {
		client  **minio.Client
		retries int
	}{{&s.client, 0}, {&s.once, 1}} {
		var err error
		if *c.client, err = minio.New(o.Endpoint, o.client(c.retries)); err != nil {
			return nil, fmt.Errorf("open s3 store: %w", err)
		}
	}
	return s, nil
}

func (o S3Options) client(retries int) *minio.Options {
	lookup := minio.BucketLookupAuto
	if o.PathStyle {
		lookup = minio.BucketLookupPath
	}
	return &minio.Options{Creds: credentials.NewStaticV4(o.AccessKey, o.SecretKey, o.SessionToken), Secure: !o.Insecure,
		Region: o.Region, BucketLookup: lookup, MaxRetries: retries, Transport: o.Transport}
}

// Root implements Store.
func (s *S3) Root() string { return s.root }

// Put implements Store.
func (s *S3) Put(ctx context.Context, location string, body []byte) error {
	k, err := newKey(s.root, location)
	if err != nil {
		return err
	}
	opts := minio.PutObjectOptions{DisableMultipart: true} // one request, so one decision whether it exists
	opts.SetMatchETagExcept("*")
	_, err = s.once.PutObject(ctx, s.bucket, s.prefix+k, bytes.NewReader(body), int64(len(body)), opts)
	if err != nil {
		return fmt.Errorf("put %s: %w", location, s3Error(err))
	}
	return nil
}

func s3Error(err error) error {
	var resp minio.ErrorResponse
	if !errors.As(err, &resp) {
		return err
	}
	switch {
	case resp.StatusCode == http.StatusPreconditionFailed || resp.Code == "PreconditionFailed":
		return ErrExists
	case resp.Code == "NoSuchKey" || resp.StatusCode == http.StatusNotFound && resp.Code != "NoSuchBucket":
		return ErrNotExist
	}
	return err
}

// Get implements Store.
func (s *S3) Get(ctx context.Context, location string) ([]byte, error) {
	return s.get(ctx, location, minio.GetObjectOptions{})
}

// GetRange implements Store.
func (s *S3) GetRange(ctx context.Context, location string, offset, length int64) ([]byte, error) {
	if length == 0 {
		_, err := s.Stat(ctx, location)
		return nil, err
	}
	var opts minio.GetObjectOptions
	if err := opts.SetRange(offset, offset+length-1); err != nil {
		return nil, fmt.Errorf("get range of %s: %w", location, err)
	}
	b, err := s.get(ctx, location, opts)
	var resp minio.ErrorResponse
	if errors.As(err, &resp) && resp.StatusCode == http.StatusRequestedRangeNotSatisfiable {
		return nil, nil // the object ends before offset
	}
	return b, err
}

func (s *S3) get(ctx context.Context, location string, opts minio.GetObjectOptions) ([]byte, error) {
	k, err := key(s.root, location)
	if err != nil {
		return nil, err
	}
	core := minio.Core{Client: s.client}
	body, _, _, err := core.GetObject(ctx, s.bucket, s.prefix+k, opts)
	if err != nil {
		return nil, fmt.Errorf("get %s: %w", location, s3Error(err))
	}
	b, err := io.ReadAll(body)
	if err = errors.Join(err, body.Close()); err != nil {
		return nil, fmt.Errorf("get %s: %w", location, err)
	}
	return b, nil
}

// Stat implements Store.
func (s *S3) Stat(ctx context.Context, location string) (Object, error) {
	k, err := key(s.root, location)
	if err != nil {
		return Object{}, err
	}
	st, err := s.client.StatObject(ctx, s.bucket, s.prefix+k, minio.StatObjectOptions{})
	if err != nil {
		return Object{}, fmt.Errorf("stat %s: %w", location, s3Error(err))
	}
	return Object{Location: location, Size: st.Size, Modified: st.LastModified}, nil
}

// Delete implements Store.
func (s *S3) Delete(ctx context.Context, location string) error {
	k, err := key(s.root, location)
	if err != nil {
		return err
	}
	err = s.client.RemoveObject(ctx, s.bucket, s.prefix+k, minio.RemoveObjectOptions{})
	if err = s3Error(err); err != nil && !errors.Is(err, ErrNotExist) {
		return fmt.Errorf("delete %s: %w", location, err)
	}
	return nil
}

// List implements Store.
func (s *S3) List(ctx context.Context, prefix string) iter.Seq2[Object, error] {
	return func(yield func(Object, error) bool) {
		k, err := listKey(s.root, prefix)
		if err != nil {
			yield(Object{}, err)
			return
		}
		for o := range s.client.ListObjectsIter(ctx, s.bucket, minio.ListObjectsOptions{Prefix: s.prefix + k, Recursive: true}) {
			if o.Err != nil {
				yield(Object{}, fmt.Errorf("list %s: %w", prefix, o.Err))
				return
			}
			loc := Join(s.root, strings.TrimPrefix(o.Key, s.prefix))
			if !yield(Object{Location: loc, Size: o.Size, Modified: o.LastModified}, nil) {
				return
			}
		}
	}
}
