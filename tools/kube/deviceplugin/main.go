// deviceplugin offers GPUs that are not there to the kubelet of its mount namespace, as the plugin
// of a vendor does: it serves on a socket of its own, registers, and registers again whenever the
// kubelet has been started anew. A container is told which ones it got in NVIDIA_VISIBLE_DEVICES.
package main

import (
	"context"
	"flag"
	"fmt"
	"log"
	"net"
	"os"
	"path/filepath"
	"strings"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	api "k8s.io/kubelet/pkg/apis/deviceplugin/v1beta1"
)

const (
	pause    = 200 * time.Millisecond
	patience = 5 * time.Second
)

type plugin struct {
	api.UnimplementedDevicePluginServer
	devices []*api.Device
}

func (p *plugin) GetDevicePluginOptions(context.Context, *api.Empty) (*api.DevicePluginOptions, error) {
	return &api.DevicePluginOptions{}, nil
}

// ListAndWatch says once what there is: these GPUs never fall ill.
func (p *plugin) ListAndWatch(_ *api.Empty, stream api.DevicePlugin_ListAndWatchServer) error {
	if err := stream.Send(&api.ListAndWatchResponse{Devices: p.devices}); err != nil {
		return err
	}
	<-stream.Context().Done()
	return nil
}

func (p *plugin) Allocate(_ context.Context, asked *api.AllocateRequest) (*api.AllocateResponse, error) {
	answer := &api.AllocateResponse{}
	for _, container := range asked.ContainerRequests {
		answer.ContainerResponses = append(answer.ContainerResponses, &api.ContainerAllocateResponse{
			Envs: map[string]string{"NVIDIA_VISIBLE_DEVICES": strings.Join(container.DevicesIds, ",")},
		})
	}
	return answer, nil
}

// serve goes on until the kubelet takes our socket away, which it does when it starts.
func serve(folder, resource string, p *plugin) error {
	name := "leasehold-gpus.sock"
	socket := filepath.Join(folder, name)
	_ = os.Remove(socket)
	listener, err := net.Listen("unix", socket)
	if err != nil {
		return err
	}
	server := grpc.NewServer()
	api.RegisterDevicePluginServer(server, p)
	failed := make(chan error, 1)
	go func() { failed <- server.Serve(listener) }()
	defer server.Stop()
	if err := register(filepath.Join(folder, "kubelet.sock"), name, resource); err != nil {
		return err
	}
	log.Printf("%d of %s are offered", len(p.devices), resource)
	for {
		select {
		case err := <-failed:
			return err
		case <-time.After(pause):
			if _, err := os.Stat(socket); err != nil {
				return fmt.Errorf("the kubelet has started anew: %w", err)
			}
		}
	}
}

func register(kubelet, endpoint, resource string) error {
	connection, err := grpc.NewClient("unix:"+kubelet, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		return err
	}
	defer connection.Close()
	within, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	_, err = api.NewRegistrationClient(connection).Register(within, &api.RegisterRequest{
		Version: api.Version, Endpoint: endpoint, ResourceName: resource,
	})
	return err
}

func main() {
	folder := flag.String("folder", api.DevicePluginPath, "where the kubelet looks for plugins")
	resource := flag.String("resource", "nvidia.com/gpu", "what is offered")
	count := flag.Int("count", 4, "how many of it")
	flag.Parse()
	p := &plugin{}
	for i := range *count {
		p.devices = append(p.devices, &api.Device{ID: fmt.Sprintf("gpu-%d", i), Health: api.Healthy})
	}
	for {
		log.Print(serve(*folder, *resource, p))
		time.Sleep(pause)
	}
}
