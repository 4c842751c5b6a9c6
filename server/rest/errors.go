package rest

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
)

// apiError is an answer that is no success, as the Iceberg REST specification has it.
type apiError struct {
	code    int
	kind    string
	message string
}

func (e *apiError) Error() string { return e.message }

var (
	errNoRoute  = &apiError{http.StatusNotFound, "NoSuchEndpointException", "No such endpoint"}
	errMethod   = &apiError{http.StatusMethodNotAllowed, "UnsupportedOperationException", "This endpoint does not take this method"}
	errReadOnly = &apiError{http.StatusNotAcceptable, "UnsupportedOperationException",
		"This catalog is read-only over REST: change tables with SQL, through the gateway's Postgres port"}
	errNotModified = &apiError{code: http.StatusNotModified}
)

// naming turns the Catalog's error into the specification's, with names.
func naming(err error, namespace, table string) error {
	switch {
	case errors.Is(err, ErrNoTable):
		return &apiError{http.StatusNotFound, "NoSuchTableException", fmt.Sprintf("Table does not exist: %s.%s", namespace, table)}
	case errors.Is(err, ErrNoNamespace) && table != "":
		// Clients that load a table know no other kind of absence.
		return &apiError{http.StatusNotFound, "NoSuchTableException", fmt.Sprintf("Table does not exist: %s.%s", namespace, table)}
	case errors.Is(err, ErrNoNamespace):
		return &apiError{http.StatusNotFound, "NoSuchNamespaceException", fmt.Sprintf("Namespace does not exist: %s", namespace)}
	}
	return err
}

type errorAnswer struct {
	Error errorBody `json:"error"`
}

type errorBody struct {
	Message string `json:"message"`
	Type    string `json:"type"`
	Code    int    `json:"code"`
}

// fail answers with err; what is not the client's business is logged and not told.
func (c *catalog) fail(w http.ResponseWriter, r *http.Request, err error) {
	var e *apiError
	if !errors.As(err, &e) {
		c.Log.Error("rest request failed", "method", r.Method, "path", r.URL.Path, "error", err)
		e = &apiError{http.StatusInternalServerError, "InternalServerError", "Internal error, see the gateway's log"}
	}
	fail(w, r, e)
}

func fail(w http.ResponseWriter, r *http.Request, e *apiError) {
	if r.Method == http.MethodHead || e.code == http.StatusNotModified {
		w.WriteHeader(e.code)
		return
	}
	if e.code == http.StatusMethodNotAllowed {
		w.Header().Set("Allow", http.MethodGet)
	}
	writeJSON(w, e.code, errorAnswer{errorBody{e.message, e.kind, e.code}})
}

func writeJSON(w http.ResponseWriter, code int, body any) {
	text, err := json.Marshal(body)
	if err != nil { // metadata that is no JSON
		code, text = http.StatusInternalServerError, []byte(`{"error":{"message":"Internal error: malformed metadata","type":"InternalServerError","code":500}}`)
	}
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(code)
	_, _ = w.Write(text) // the client may have left
}
