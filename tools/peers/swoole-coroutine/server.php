<?php
// The coroutine contestant: Swoole\Coroutine\Http\Server, one process for each worker on one port (SO_REUSEPORT).
use Swoole\Coroutine\Http\Server;
use Swoole\Process\Pool;

$headers = ['Content-Type' => getenv('CEILING_TYPE')];
foreach (array_filter(explode("\n", getenv('CEILING_HEADERS'))) as $line) {
    [$name, $value] = explode(': ', $line, 2);
    $headers[$name] = $value;
}
$body = getenv('CEILING_BODY');

$pool = new Pool((int) getenv('CEILING_WORKERS'));
$pool->set(['enable_coroutine' => true, 'log_file' => getenv('WORK') . '/swoole.log']);
$pool->on('WorkerStart', static function () use ($headers, $body): void {
    $server = new Server('127.0.0.1', (int) getenv('CEILING_PORT'), false, true);
    $server->handle('/', static function ($request, $response) use ($headers, $body): void {
        foreach ($headers as $name => $value) {
            $response->header($name, $value);
        }
        $response->end($body);
    });
    $server->start();
});
$pool->start();
