package server

import (
	"context"
	"errors"
	"maps"
	"slices"
	"strings"

	"sluice/catalogpg"
	"sluice/server/auth"
	"sluice/server/wire"
)

// login says who the client is and lets it in.
func (s *session) login(ctx context.Context, st *wire.Startup) error {
	err := s.authenticate(ctx, st)
	if err == nil && st.Database != s.srv.Catalog.Database() {
		err = wire.Fatalf(wire.CodeInvalidCatalogName, "database %q does not exist", st.Database)
	}
	if err != nil {
		if e, ok := sqlError(err); ok {
			s.c.ErrorResponse(e)
		} else {
			s.c.ErrorResponse(wire.Fatalf(wire.CodeInternalError, "authentication failed"))
		}
		s.c.Flush()
		return err
	}
	s.c.Authenticated()
	return nil
}

func (s *session) authenticate(ctx context.Context, st *wire.Startup) error {
	return auth.Authenticate(ctx, s.c, st, auth.Options{Verifiers: s.srv.Catalog, Trust: s.srv.Trust})
}

// greet sends what follows authentication. Only a client that brings settings of its own needs a backend for it: Postgres must check them.
func (s *session) greet(ctx context.Context) error {
	s.told, s.reports = map[string]string{}, map[string]string{}
	params := s.srv.params
	if !s.plain() {
		if err := s.attach(ctx); err != nil {
			return s.fatal(err)
		}
		params = s.pg.Load().Params
	}
	for _, name := range slices.Sorted(maps.Keys(params)) {
		value := params[name]
		switch {
		case name == "session_authorization":
			value = s.user
		case name == "application_name":
			value = s.setting(name)
		}
		s.c.ParameterStatus(name, value)
		s.told[name] = value
	}
	s.c.BackendKeyData(s.pid, s.secret)
	s.c.ReadyForQuery('I')
	return s.c.Flush()
}

// plain reports whether the client's settings change nothing that a value or a plan depends on.
func (s *session) plain() bool {
	for _, set := range s.settings {
		switch strings.ToLower(set.Name) {
		case "application_name":
		case "client_encoding":
			if enc := strings.Trim(set.Value, "'"); !strings.EqualFold(enc, "utf8") && !strings.EqualFold(enc, "utf-8") {
				return false
			}
		default:
			return false
		}
	}
	return true
}

func (s *session) setting(name string) (value string) {
	for _, set := range s.settings {
		if strings.EqualFold(set.Name, name) {
			value = set.Value
		}
	}
	return value
}

// attach logs a backend in as the session's user.
func (s *Server) attach(ctx context.Context, ss *session) (*catalogpg.Backend, error) {
	params := map[string]string{}
	for _, set := range ss.settings {
		params[strings.ToLower(set.Name)] = set.Value
	}
	be, err := s.Catalog.Attach(ctx, ss.user, ss.db, params)
	if err == nil {
		return be, nil
	}
	var role *catalogpg.RoleError
	if errors.As(err, &role) {
		return nil, wire.Fatalf(wire.CodeInvalidAuthorizationSpecification, "%s", role.Error())
	}
	if e, ok := sqlError(err); ok {
		e.Severity = "FATAL"
		return nil, e
	}
	return nil, err
}
