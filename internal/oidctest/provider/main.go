// Provider is the example server of zitadel/oidc, a provider of OpenID Connect, with
// people who have groups. Package oidctest starts it:
//
//	provider REDIRECT_URL
//
// It prints its issuer, and serves until its standard input ends.
package main

import (
	"context"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"os"

	"github.com/zitadel/oidc/v3/example/server/exampleop"
	"github.com/zitadel/oidc/v3/example/server/storage"
	"github.com/zitadel/oidc/v3/pkg/oidc"
)

// people are the users by subject. The password of each is secret.
var people = map[string]*storage.User{
	"1001": {ID: "1001", Username: "rita", Password: "secret", Email: "rita@example.com", EmailVerified: true},
	"1002": {ID: "1002", Username: "otto", Password: "secret", Email: "otto@example.com", EmailVerified: true},
	"1003": {ID: "1003", Username: "edna", Password: "secret", Email: "otto@example.com"}, // not hers
	"1004": {ID: "1004", Username: "nora", Password: "secret", Email: "nora@example.com", EmailVerified: true},
}

// groups are the groups of each.
var groups = map[string][]string{
	"1001": {"all", "support"},
	"1002": {"all", "support", "cn=on call,dc=example"},
	"1003": {"all", "owners"},
	"1004": {"all"},
}

type users struct{}

func (users) GetUserByID(id string) *storage.User { return people[id] }

func (users) GetUserByUsername(name string) *storage.User {
	for _, one := range people {
		if one.Username == name {
			return one
		}
	}
	return nil
}

func (users) ExampleClientID() string { return storage.ServiceUserID }

// store adds the groups to what the userinfo endpoint tells.
type store struct{ *storage.Storage }

func (s store) SetUserinfoFromToken(ctx context.Context, info *oidc.UserInfo, token, subject, origin string) error {
	err := s.Storage.SetUserinfoFromToken(ctx, info, token, subject, origin)
	info.AppendClaims("groups", groups[info.Subject])
	return err
}

func main() {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		log.Fatal(err)
	}
	storage.RegisterClients(storage.WebClient("desk", "secret of the client", os.Args[1]),
		storage.NativeClient("public", os.Args[1]))
	// The page is at 127.0.0.1: for a browser that is another site than localhost.
	issuer := fmt.Sprintf("http://localhost:%d", listener.Addr().(*net.TCPAddr).Port)
	provider := exampleop.SetupServer(issuer, store{storage.NewStorage(users{})}, nil, false)
	server := &http.Server{Handler: provider}
	go func() {
		_, _ = io.Copy(io.Discard, os.Stdin)
		_ = server.Close()
	}()
	fmt.Println(issuer)
	if err := server.Serve(listener); err != http.ErrServerClosed {
		log.Fatal(err)
	}
}
